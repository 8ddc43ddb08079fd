"""Everybody can use the pages: contrast, names, keyboard, both sizes, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import DESKTOP, PHONE, idle, new_page, pause, time_of, visit
from tests.server.running import ROOT

pytestmark = pytest.mark.browser
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text(encoding="utf-8")
MOMENT = "?task=adversarial_multitenant&seed=42&a=ppo&b=heuristic&t=60"
LOOKS = pytest.mark.parametrize(
    ("size", "scheme"),
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")],
    ids=["desktop-light", "desktop-dark", "phone-light", "phone-dark"],
)
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
LEAST_CHART_PX = 65
IS_BLANK = """canvas => {
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.every((value) => value === 0);
}"""

IS_COVERED = """() => {
  const focused = document.activeElement;
  const { outlineWidth, outlineOffset } = getComputedStyle(focused);
  const ring = parseFloat(outlineWidth) + parseFloat(outlineOffset);
  const { top, bottom } = focused.getBoundingClientRect();
  const beside = [...focused.parentElement.children].filter((one) => one !== focused);
  const isUnder = (box) => box.bottom > top - ring + 0.1 && box.top < bottom + ring - 0.1;
  return beside.filter((one) => isUnder(one.getBoundingClientRect())).map((one) => one.id || one.tagName);
}"""


def problems(page: Page) -> list[str]:
    """What axe finds against WCAG 2.2 AA and good practice; OpenEnv's own page is not ours to judge."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run({exclude: [['iframe']]}).then((result) => result.violations)")
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


@LOOKS
def test_axe_finds_nothing_wrong_with_an_episode(
    browser: Browser, address: str, size: dict[str, int], scheme: str
) -> None:
    page = visit(browser, address, MOMENT, size, color_scheme=scheme)
    assert problems(page) == []
    page.click("#end")
    expect(page.locator("#result")).to_be_visible()
    assert problems(page) == []


@LOOKS
def test_axe_finds_nothing_wrong_with_the_description_of_the_interface(
    browser: Browser, address: str, size: dict[str, int], scheme: str
) -> None:
    page = new_page(browser, size, color_scheme=scheme)
    page.goto(f"{address}/docs#post-step")
    expect(page.locator("#post-step form")).to_be_visible()
    assert problems(page) == []


def test_axe_finds_nothing_wrong_while_i_play_or_read_about_the_agents(browser: Browser, address: str) -> None:
    page = visit(browser, address, "?task=adversarial_multitenant&seed=42&a=you&b=ppo", PHONE)
    page.click("#show-knobs")
    expect(page.locator("#knob-batch_cap")).to_be_in_viewport()
    assert problems(page) == []
    desktop = visit(browser, address, MOMENT)
    desktop.click("#about")
    expect(desktop.locator("#about-dialog")).to_be_visible()
    assert problems(desktop) == []


def test_every_agent_is_described_the_planner_and_the_language_model_too(browser: Browser, address: str) -> None:
    page = visit(browser, address, MOMENT)
    page.click("#about")
    described = page.locator("#agent-list > div")
    assert all(len(one.inner_text()) > 40 for one in described.all())
    listed = page.inner_text("#agent-list")
    for title in ("You", "PPO", "Planner", "Language model", "Heuristic"):
        assert title in listed
    own = page.locator("#about-dialog p", has_text="llmserve evaluate --agent my_file.py:MyAgent")
    expect(own).to_be_visible()
    answer = page.request.get(address + str(own.locator("a").get_attribute("href")))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert answer.text() == (ROOT / "docs" / "own_agents.md").read_text(encoding="utf-8")
    page.keyboard.press("Escape")
    expect(page.locator("#about-dialog")).to_be_hidden()


@SIZES
def test_charts_and_controls_are_in_sight_together(browser: Browser, address: str, size: dict[str, int]) -> None:
    page = visit(browser, address, "?task=adversarial_multitenant&seed=42&a=you&b=ppo", size)
    if size is PHONE:
        page.click("#show-knobs")
    for sight in ("#play", "#line", "#knob-batch_cap", "#card-a", "#card-b", "#charts figure:nth-child(2)"):
        expect(page.locator(sight)).to_be_in_viewport(ratio=0.95)
    if size is DESKTOP:
        for chart in page.locator("#charts figure, #strips .strip:visible").all():
            expect(chart).to_be_in_viewport(ratio=0.95)
        assert page.evaluate("document.documentElement.scrollHeight") <= size["height"]


@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1400, 1920])
def test_nothing_is_cut_off_at_any_width(browser: Browser, address: str, width: int) -> None:
    page = visit(browser, address, MOMENT, {"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize(("width", "height"), [(390, 700), (1100, 720), (1366, 768), (1280, 850), (1280, 870)])
def test_no_chart_is_squashed_in_any_window(browser: Browser, address: str, width: int, height: int) -> None:
    page = visit(browser, address, MOMENT, {"width": width, "height": height})
    heights = page.eval_on_selector_all("#charts canvas", "all => all.map((one) => one.clientHeight)")
    assert min(heights) >= LEAST_CHART_PX


def test_no_chart_is_empty_in_any_group(browser: Browser, address: str) -> None:
    page = visit(browser, address, MOMENT)
    for group in ("service", "engine", "reward"):
        page.locator(f"#groups input[value={group}]").check(force=True)
        canvases = page.locator("#charts canvas, #strips .strip:visible canvas, .dots")
        assert canvases.count() == 6 + 6 + 2
        assert [i for i in range(canvases.count()) if canvases.nth(i).evaluate(IS_BLANK)] == []
        for figure in page.locator("#charts figcaption").all():
            assert len(figure.inner_text().split()) >= 3


def test_the_slo_of_every_class_is_drawn_and_named(browser: Browser, address: str) -> None:
    page = visit(browser, address, MOMENT)
    label = page.locator("#charts figure:nth-child(2) canvas").get_attribute("aria-label") or ""
    for limit in ("interactive 200 ms", "batch 2 s", "best effort 8 s"):
        assert limit in label


@SIZES
def test_the_ring_around_the_control_with_the_keyboard_covers_no_text(
    browser: Browser, address: str, size: dict[str, int]
) -> None:
    page = visit(browser, address, "?task=static_workload&seed=42&a=you&b=ppo", size)
    if size is PHONE:
        page.click("#show-knobs")
    page.locator("#knob-batch_cap-range").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    assert page.locator(".knob[data-knob=batch_cap] > :not([type=range])").count() == 3
    assert page.evaluate(IS_COVERED) == []


def test_it_can_be_used_with_the_keyboard_alone(browser: Browser, address: str) -> None:
    page = visit(browser, address, "?task=static_workload&seed=42&a=you&b=ppo")
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    wanted = ["tab-dashboard", "theme", "task", "seed", "new-seed", "share", "record", "player-a", "player-b"]
    wanted += ["knob-batch_cap", "knob-batch_cap-range", "play", "step", "line", "end", "speed"]
    assert [name for name in wanted if name not in reached] == []
    page.locator("#knob-batch_cap-range").focus()
    before = int(page.input_value("#knob-batch_cap"))
    page.keyboard.press("ArrowRight")
    assert int(page.input_value("#knob-batch_cap")) == before + 1
    page.locator("#step").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#line")).to_have_value("1")
    page.locator("#tab-dashboard").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#console")).to_be_visible()


def test_space_and_arrows_play_when_nothing_else_has_the_keyboard(browser: Browser, address: str) -> None:
    page = visit(browser, address, MOMENT)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#line")).to_have_value("61")
    idle(page)
    page.keyboard.press("Space")
    page.wait_for_function("document.getElementById('line').value > 63")
    page.keyboard.press("Space")
    pause(page)
    page.keyboard.press("Home")
    expect(page.locator("#line")).to_have_value("0")


def test_the_colours_can_be_chosen_and_are_remembered(browser: Browser, address: str) -> None:
    page = visit(browser, address, MOMENT, color_scheme="light")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light != dark
    page.reload()
    idle(page)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert time_of(page) == 60
