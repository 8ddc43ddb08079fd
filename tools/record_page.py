"""Record the README's animation with the page's own *Save GIF*: `python -m tools.record_page [-o FILE]`.

It needs Chromium but no server: the page plays its recorded opening, and its files are read from the package.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Route

from llmserve_env.server.routes.pages import STATIC, STATIC_PATH
from tools.chromium import chromium

OUTPUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "episode.gif"
ADDRESS = "http://page.invalid"
"""Nothing is listening there: every request is answered from the package."""
TIMEOUT_MS = 300_000


def answer(route: Route) -> None:
    """Answer with a file of the page, and as a server that cannot simulate."""
    path = urlsplit(route.request.url).path
    if path == "/web":
        route.fulfill(path=STATIC / "index.html")
    elif path.startswith(STATIC_PATH):
        route.fulfill(path=STATIC / path.removeprefix(f"{STATIC_PATH}/"))
    else:
        route.fulfill(json={"ready": False, "progress": 0.0})


def record(output: Path) -> None:
    """Open the page, go to the end of its episode and save the animation."""
    with chromium() as browser:
        page = browser.new_context(accept_downloads=True, color_scheme="light", reduced_motion="reduce").new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.route("**/*", answer)
        page.goto(f"{ADDRESS}/web")
        page.wait_for_selector("#result:not([hidden])")
        with page.expect_download() as download:
            page.click("#record")
        output.parent.mkdir(parents=True, exist_ok=True)
        download.value.save_as(output)


def main() -> None:
    """Record and say where."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=OUTPUT, help="file to write (default: docs/images)")
    output = parser.parse_args().output
    record(output)
    print(output)


if __name__ == "__main__":
    main()
