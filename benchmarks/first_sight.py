"""How soon a first-time visitor sees the page move: `python -m benchmarks.first_sight [--json]`, about a minute.

Opens the page in Chromium, without a click, and takes the time from the start of the navigation until the pictures of
traffic, SLO and knobs have each changed twice: on a server that has just been started without compiled kernels, on one
that compiles them, and on one that is ready.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from typing import Any

import httpx
from playwright.sync_api import Browser

from benchmarks.bars import report_missed
from benchmarks.cold_start import POLL_INTERVAL_S, accepted_s, free_port, server
from benchmarks.markdown import markdown_table
from tools.chromium import chromium

BAR_S = 5.0
TIMEOUT_MS = 120_000
SIZES = {"1400 × 900": (1400, 900), "390 × 844 (phone)": (390, 844)}
STATES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "just started": lambda health: True,
    "compiling": lambda health: health["progress"] > 0.0,
    "ready": lambda health: bool(health["ready"]),
}
WATCH = """
const pictures = ["#charts figure:nth-child(1) canvas", "#charts figure:nth-child(3) canvas", "#strips canvas"];
const seen = pictures.map(() => new Set());
function look() {
  pictures.forEach((selector, i) => {
    const canvas = document.querySelector(selector);
    if (canvas && canvas.width) seen[i].add(canvas.toDataURL());
  });
  if (seen.every((different) => different.size >= 3)) window.sawItMoveAtMs = performance.now();
  else requestAnimationFrame(look);
}
requestAnimationFrame(look);
"""


def first_sight_s(browser: Browser, url: str, size: tuple[int, int]) -> tuple[float, str]:
    """Seconds until everything has moved, and what the page says about the server then."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(f"{url}/web")
    page.wait_for_function("window.sawItMoveAtMs", timeout=TIMEOUT_MS)
    seen_s, said = page.evaluate("window.sawItMoveAtMs") / 1e3, page.inner_text("#source")
    context.close()
    return round(seen_s, 2), said


def wait_until(url: str, is_reached: Callable[[dict[str, Any]], bool]) -> None:
    """Ask `/health` until it says so."""
    while not is_reached(httpx.get(f"{url}/health", timeout=TIMEOUT_MS / 1e3).raise_for_status().json()):
        time.sleep(POLL_INTERVAL_S)


def measure() -> list[dict[str, Any]]:
    """Both sizes of window on servers in each state; only the last kind of server finds compiled kernels."""
    found = []
    with chromium() as browser, tempfile.TemporaryDirectory() as kept:
        for state, is_reached in STATES.items():
            for window, size in SIZES.items():
                port = free_port()
                url = f"http://127.0.0.1:{port}"
                with tempfile.TemporaryDirectory() as empty, server(kept if state == "ready" else empty, port):
                    accepted_s(port, time.perf_counter())
                    wait_until(url, is_reached)
                    seen_s, said = first_sight_s(browser, url, size)
                found.append({"server": state, "window": window, "seen_s": seen_s, "said": said})
    return found


def main() -> int:
    """Measure, print, and compare with the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    rows = measure()
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        cells = [[str(value) for value in row.values()] for row in rows]
        print(markdown_table(["server", "window", "traffic, knobs and SLO move after, s", "the page says"], cells))
    late = [row for row in rows if row["seen_s"] > BAR_S]
    return report_missed([f"{row['server']}, {row['window']}: {row['seen_s']} s > {BAR_S:g} s" for row in late])


if __name__ == "__main__":
    raise SystemExit(main())
