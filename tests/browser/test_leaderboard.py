"""The leaderboard in a real browser: nothing sticks out, the table sorts, an episode of every entry can be watched."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import DESKTOP, PHONE, new_page
from tests.browser.test_accessibility import problems

pytestmark = pytest.mark.browser
BOARD = Path(__file__).resolve().parents[2] / "docs" / "leaderboard.html"
LOOKS = pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop-light", "phone-dark"]
)
OVERFLOWS = "boxes => boxes.filter((box) => box.scrollWidth > box.clientWidth).length"


def open_board(browser: Browser, size: dict[str, int], **options: str) -> Page:
    page = new_page(browser, size, **options)
    page.goto(BOARD.as_uri())
    return page


@LOOKS
def test_nothing_is_cut_off_and_axe_finds_nothing_wrong(browser: Browser, size: dict[str, int], scheme: str) -> None:
    page = open_board(browser, size, color_scheme=scheme)
    page.locator("button.watch").first.click()
    expect(page.locator("#charts svg")).to_have_count(6)
    page.select_option("#task", "adversarial_multitenant")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.eval_on_selector_all(".scroll, .scroll td, #watch, #charts figure, .strip", OVERFLOWS) == 0
    assert problems(page) == []


@pytest.mark.parametrize("suite", ["core", "extended"])
def test_a_heading_sorts_by_its_column(browser: Browser, suite: str) -> None:
    table = open_board(browser, DESKTOP).locator(f"#suite-{suite}")
    table.get_by_role("button", name="score", exact=True).click()
    scores = [float(text.split()[0]) for text in table.locator("td[data-label=score]").all_inner_texts()]
    assert scores == sorted(scores)
    assert len(set(scores)) > 3


def test_an_episode_plays_when_an_agent_is_pressed_unless_no_motion_is_wanted(browser: Browser) -> None:
    page = open_board(browser, DESKTOP)
    page.locator("button.watch").first.click()
    expect(page.locator("#task")).to_have_value("adversarial_multitenant")
    expect(page.locator("#now")).to_have_text(re.compile(r"^\d\d+ of 200 s"))
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#now")).not_to_contain_text("200 of 200")
    still = open_board(browser, DESKTOP, reduced_motion="reduce")
    still.locator("button.watch").first.click()
    expect(still.locator("#now")).to_contain_text("200 of 200")


def test_every_entry_can_be_watched_with_its_knobs_in_their_own_units(browser: Browser) -> None:
    page = open_board(browser, DESKTOP)
    for button in page.locator("button.watch").all():
        button.click()
        expect(page.locator("#who")).to_have_text(button.inner_text())
        page.get_by_role("button", name="Pause").click()
        knobs = {strip.split("\n")[0]: strip.split("\n")[1] for strip in page.locator(".strip").all_inner_texts()}
        assert knobs["tier"] in ("FP16", "INT8", "INT4")
        assert knobs["priority"] in ("on", "off")
        page.keyboard.press("Escape")
        expect(page.locator("#watch")).to_be_hidden()
    page.locator("button.watch").first.click()
    page.evaluate(
        "document.getElementById('at').value = 1; document.getElementById('at').dispatchEvent(new Event('input'))"
    )
    expect(page.locator("#now")).to_contain_text("1 of 200")


def test_an_agent_is_compared_with_vllms_defaults_or_whoever_is_chosen(browser: Browser) -> None:
    page = open_board(browser, DESKTOP, reduced_motion="reduce")
    page.get_by_role("button", name="tuned", exact=True).first.click()
    expect(page.locator("#key")).to_have_text("tunedvllm_defaults")
    first_token = page.locator("#charts figure").nth(1)
    expect(first_token.locator("polyline")).to_have_count(2)
    page.select_option("#against", label="nobody")
    expect(page.locator("#key")).to_have_text("tuned")
    expect(first_token.locator("polyline")).to_have_count(1)


def test_a_link_brings_back_the_episode_that_was_watched(browser: Browser) -> None:
    page = open_board(browser, DESKTOP, reduced_motion="reduce")
    page.get_by_role("button", name="heuristic", exact=True).first.click()
    page.select_option("#task", "bursty_workload")
    link = page.url
    assert link.endswith("#core-heuristic.json/bursty_workload")
    again = new_page(browser, DESKTOP, reduced_motion="reduce")
    again.goto(link)
    expect(again.locator("#who")).to_have_text("heuristic")
    expect(again.locator("#task")).to_have_value("bursty_workload")
    again.get_by_role("button", name="Close").click()
    expect(again.locator("#watch")).to_be_hidden()
    assert "#" not in again.url


def test_every_score_has_a_bar_of_its_length(browser: Browser) -> None:
    page = open_board(browser, DESKTOP)
    for cell in page.locator("#suite-core td[data-label=score]").all():
        share = float(cell.get_attribute("data-value") or "nan")
        assert f"--mean:{share:.1%}" in (cell.locator(".bar").get_attribute("style") or "")
