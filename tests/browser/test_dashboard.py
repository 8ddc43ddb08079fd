"""The dashboard in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import idle, visit

pytestmark = pytest.mark.browser


def steps_of(page: Page) -> str:
    return page.inner_text("#status dd >> nth=0")


def step(page: Page, times: int) -> None:
    for _ in range(times):
        idle(page)
        before = int(steps_of(page).split()[0])
        page.click("#step")
        expect(page.locator("#status dd").first).to_have_text(f"{before + 1} of 200")


def test_two_visitors_do_not_disturb_each_other(browser: Browser, address: str) -> None:
    one, two = visit(browser, address), visit(browser, address)
    step(one, 3)
    two.select_option("#task", "bursty_workload")
    expect(two.locator("#task-text")).to_contain_text("bursts")
    step(two, 1)
    step(one, 1)
    assert (steps_of(one), steps_of(two)) == ("4 of 200", "1 of 200")


def test_an_agent_plays_an_episode_to_its_grade(browser: Browser, address: str, tmp_path: Path) -> None:
    page = visit(browser, address)
    page.select_option("#player", "heuristic")
    page.select_option("#speed", "fast")
    page.click("#play")
    expect(page.locator("#grade")).to_be_visible()
    assert 0.0 <= float(page.inner_text("#score")) <= 1.0
    assert len(page.inner_text("#feedback")) > 20
    assert steps_of(page) == "200 of 200"
    expect(page.locator("#step")).to_be_disabled()
    with page.expect_download() as download:
        page.click("#save-log")
    download.value.save_as(tmp_path / "log.json")
    log = json.loads((tmp_path / "log.json").read_text(encoding="utf-8"))
    assert (log["task_id"], log["seed"], len(log["actions"])) == ("static_workload", 42, 200)
    with page.expect_download() as download:
        page.click("#save-csv")
    download.value.save_as(tmp_path / "figures.csv")
    assert len((tmp_path / "figures.csv").read_text(encoding="utf-8").splitlines()) == 201


def test_playing_can_be_paused(browser: Browser, address: str) -> None:
    page = visit(browser, address)
    page.click("#play")
    page.wait_for_function("document.getElementById('progress').value >= 3")
    page.click("#play")
    expect(page.locator("#play")).to_have_text("Play")
    step(page, 3)


def test_bad_input_shows_its_message_and_the_episode_goes_on(browser: Browser, address: str) -> None:
    page = visit(browser, address)
    page.fill("#knob-batch_cap", "9999")
    page.click("#step")
    expect(page.locator("#alert")).to_have_text("batch_cap must be a whole number from 1 to 512; got 9999")
    expect(page.locator("#alert")).to_be_in_viewport()
    page.fill("#knob-batch_cap", "96")
    step(page, 1)
    expect(page.locator("#alert")).to_be_hidden()
    page.fill("#seed", "-5")
    page.click("#reset")
    expect(page.locator("#alert")).to_contain_text("seed")


def test_knobs_that_do_not_act_are_disabled_and_say_so(browser: Browser, address: str) -> None:
    page = visit(browser, address)
    expect(page.locator("#knob-priority_routing")).to_be_disabled()
    expect(page.locator("#knob-priority_routing-note")).to_contain_text("stays at its default")
    page.select_option("#task", "adversarial_multitenant")
    expect(page.locator("#knob-priority_routing")).to_be_enabled()


def test_it_can_be_used_with_the_keyboard_alone(browser: Browser, address: str) -> None:
    page = visit(browser, address)
    page.locator("#tab-dashboard").focus()
    page.keyboard.press("s")
    expect(page.locator("#status dd").first).to_have_text("1 of 200")
    page.locator("#knob-batch_cap-range").focus()
    page.keyboard.press("ArrowRight")
    assert page.input_value("#knob-batch_cap") == "33"
    page.locator("#player").focus()
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"speed", "step", "play", "finish"} <= reached
    page.locator("#tab-dashboard").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#console")).to_be_visible()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_is_cut_off_at_any_width(browser: Browser, address: str, width: int) -> None:
    page = visit(browser, address, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    canvases = page.locator("#charts canvas")
    assert canvases.count() == 11
    assert all(canvases.nth(i).bounding_box()["width"] > 200 for i in range(11))  # type: ignore[index]


def test_on_a_phone_the_buttons_stay_in_reach(browser: Browser, address: str) -> None:
    page = visit(browser, address, width=390)
    page.locator("#key").scroll_into_view_if_needed()
    expect(page.locator("#play")).to_be_in_viewport(ratio=1)
    page.click("#step")
    expect(page.locator("#status dd").first).to_have_text("1 of 200")


def test_it_asks_nothing_of_other_machines(browser: Browser, address: str) -> None:
    page = browser.new_context().new_page()
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{address}/web")
    page.wait_for_function("!document.getElementById('step').disabled")
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert problems == []


def test_a_server_that_warms_up_is_waited_for(browser: Browser, address: str) -> None:
    page = browser.new_context().new_page()
    is_ready = [False]
    page.route("**/health", lambda route: route.fulfill(json={"status": "healthy", "ready": is_ready[0]}))
    page.goto(f"{address}/web")
    expect(page.locator("#warming")).to_be_visible()
    expect(page.locator("#step")).to_be_disabled()
    is_ready[0] = True
    expect(page.locator("#warming")).to_be_hidden()
    expect(page.locator("#step")).to_be_enabled()


def test_the_console_of_openenv_is_a_tab(browser: Browser, address: str) -> None:
    page = visit(browser, address)
    page.click("#tab-console")
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="Reset").click()
    expect(frame.get_by_text("static_workload").first).to_be_visible()


def test_the_ways_to_the_page_lead_there(browser: Browser, address: str) -> None:
    for path in ("/", "/demo", "/web/"):
        page = browser.new_context().new_page()
        page.goto(address + path)
        expect(page.locator("h1")).to_have_text("LLMServeEnv")
