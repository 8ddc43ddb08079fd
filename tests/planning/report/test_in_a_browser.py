"""The report in a real browser, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Request

from llmserve_env.planning.report.page import SECTIONS
from tools.chromium import chromium

pytestmark = pytest.mark.browser

WIDTHS = (1280, 390)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_opens_without_anything_from_elsewhere(browser: Browser, report_file: Path, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    asked: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith("data:"):
            asked.append(request.url)

    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", note)
    page.goto(report_file.as_uri())
    assert asked == [report_file.as_uri()]
    assert complaints == []
    sizes = page.eval_on_selector_all(
        "img", "images => images.map(i => [i.naturalWidth, i.getBoundingClientRect().width])"
    )
    assert len(sizes) >= 10
    assert all(natural > 0 and 0 < shown <= width for natural, shown in sizes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for name, _ in SECTIONS:
        assert page.locator(f"section#{name} h2").is_visible()
    page.close()
