"""What a phone shows: names of limits apart from each other, figures with few digits, a short status."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PHONE, new_page, visit

pytestmark = pytest.mark.browser
MOMENT = "?task=adversarial_multitenant&seed=42&a=ppo&b=heuristic&t=60"
CHART = "#charts figure:nth-child(2) canvas"
FEW_DIGITS = re.compile(r"[-−]?(0(\.\d{1,2})?|\d{1,3}(\.\d)?|\d+k)")
LINES = "one => one.getBoundingClientRect().height / parseFloat(getComputedStyle(one).lineHeight)"
WATCH = """chart => {
  const pen = chart.getContext("2d");
  const { fillText, moveTo } = pen;
  const seen = { names: [], lines: [] };
  pen.moveTo = (x, y) => {
    if (pen.getLineDash().length) seen.lines.push(y);
    moveTo.call(pen, x, y);
  };
  pen.fillText = (text, x, y) => {
    const { width, actualBoundingBoxAscent: above, actualBoundingBoxDescent: below } = pen.measureText(text);
    const left = x - { left: 0, center: width / 2, right: width }[pen.textAlign];
    seen.names.push({ text, left, right: left + width, top: y - above, bottom: y + below });
    fillText.call(pen, text, x, y);
  };
  window.seen = seen;
}"""


def drawn(page: Page) -> tuple[list[dict[str, Any]], list[float]]:
    """The texts of the chart of first tokens with their boxes, and the heights of its dashed lines."""
    page.locator(CHART).evaluate(WATCH)
    page.evaluate("document.dispatchEvent(new Event('themechange'))")
    seen = page.evaluate("window.seen")
    return seen["names"], seen["lines"]


@pytest.mark.parametrize("width", [360, 390, 430])
def test_names_of_limits_overlap_neither_each_other_nor_a_line(browser: Browser, address: str, width: int) -> None:
    page = visit(browser, address, MOMENT, {"width": width, "height": 844})
    texts, lines = drawn(page)
    names = [one for one in texts if one["text"].startswith(("interactive", "batch", "best effort"))]
    assert (len(names), len(lines)) == (3, 3)
    for i, one in enumerate(names):
        assert [y for y in lines if one["top"] < y < one["bottom"]] == [], one["text"]
        for other in names[:i]:
            is_beside = one["right"] <= other["left"] or other["right"] <= one["left"]
            assert is_beside or one["bottom"] <= other["top"] or other["bottom"] <= one["top"], (one, other)


def test_rewards_have_few_digits(browser: Browser, address: str) -> None:
    page = visit(browser, address, MOMENT, PHONE)
    page.locator("#groups input[value=reward]").check(force=True)
    figures = page.locator("#charts .now b").all_inner_texts()
    assert len(figures) == 12
    assert [one for one in figures if not FEW_DIGITS.fullmatch(one)] == []


def test_the_status_is_short_on_a_phone(browser: Browser, address: str) -> None:
    waiting = new_page(browser, PHONE)
    waiting.route("**/health", lambda route: route.fulfill(json={"ready": False, "progress": 0.4}))
    waiting.goto(f"{address}/web")
    expect(waiting.locator("#source")).to_contain_text("40 %")
    ready = visit(browser, address, size=PHONE)
    expect(ready.locator("#source")).to_have_text("Recorded episode; the simulator is ready")
    live = visit(browser, address, MOMENT, PHONE)
    expect(live.locator("#source")).to_have_text("Live simulation")
    lines = [round(page.locator("#source").evaluate(LINES)) for page in (waiting, ready, live)]
    assert lines[0] <= 2
    assert lines[1:] == [1, 1]
