"""What a first-time visitor sees, without a click: on a warm server, and on one that cannot simulate yet."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import DESKTOP, PHONE, new_page, time_of, visit
from tools.record_opening import OUTPUT

pytestmark = pytest.mark.browser
SIZES = pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
PICTURES = {
    "traffic": "#charts figure:nth-child(1) canvas",
    "SLO": "#charts figure:nth-child(3) canvas",
    "knobs": "#strips .strip:nth-child(1) canvas",
}
PIXELS = "canvas => canvas.toDataURL()"


def pictures(page: Page) -> dict[str, str]:
    return {name: page.eval_on_selector(selector, PIXELS) for name, selector in PICTURES.items()}


def see_it_move(page: Page) -> None:
    """Traffic, knobs and SLO are in sight, and none of them stays as it is."""
    page.wait_for_function("document.getElementById('line').value >= 2")
    for selector in PICTURES.values():
        expect(page.locator(selector)).to_be_in_viewport(ratio=0.9)
    before, step = pictures(page), time_of(page)
    page.wait_for_function("step => document.getElementById('line').value >= step + 4", arg=step)
    after = pictures(page)
    assert [name for name in PICTURES if before[name] == after[name]] == []


def not_ready(route: Route) -> None:
    route.fulfill(json={"status": "healthy", "ready": False, "warming_up": True, "progress": 0.4})


@SIZES
def test_traffic_knobs_and_slo_move_without_a_click(browser: Browser, address: str, size: dict[str, int]) -> None:
    page = new_page(browser, size)
    page.goto(f"{address}/web")
    see_it_move(page)


@SIZES
def test_they_move_while_the_server_compiles_and_the_page_says_so(
    browser: Browser, address: str, size: dict[str, int]
) -> None:
    page = new_page(browser, size)
    page.route("**/health", not_ready)
    for path in ("tasks", "agents*", "reset", "play"):
        page.route(f"{address}/{path}", lambda route: None)  # never answered, as by a server that is not ready
    page.goto(f"{address}/web")
    see_it_move(page)
    expect(page.locator("#source")).to_have_text("Recorded episode; the server is compiling its simulator: 40 %")
    expect(page.locator("#task")).to_be_disabled()


def test_the_controls_wake_up_when_the_server_is_ready(browser: Browser, address: str) -> None:
    page = new_page(browser)
    page.route("**/health", not_ready)
    page.goto(f"{address}/web")
    expect(page.locator("#source")).to_contain_text("40 %")
    page.unroute("**/health")
    expect(page.locator("#source")).to_have_text("Recorded episode; the simulator is ready")
    expect(page.locator("#task option")).to_have_count(3)
    expect(page.locator("#take-over")).to_be_enabled()


def test_it_opens_with_a_trained_policy_against_the_defaults_on_a_hard_task(browser: Browser, address: str) -> None:
    recording = json.loads(OUTPUT.read_text(encoding="utf-8"))
    assert recording["task"]["difficulty"] == "hard"
    page = visit(browser, address)
    assert [page.input_value("#player-a"), page.input_value("#player-b")] == [
        lane["agent"] for lane in recording["lanes"]
    ]
    assert page.input_value("#player-a") == "ppo"
    assert "default" in page.inner_text("#card-b .does")


def test_the_recording_is_what_the_simulator_plays(browser: Browser, address: str) -> None:
    """The same episode, recorded and played live by choosing its players again."""
    recorded = visit(browser, address)
    recorded.click("#end")
    expect(recorded.locator("#result")).to_be_visible()
    live = visit(browser, address, recorded.evaluate("location.search"))
    expect(live.locator("#source")).to_have_text("Live simulation")
    expect(live.locator("#result")).to_be_visible()
    for part in ("#result table", "#card-a dl", "#card-b dl"):
        assert live.inner_text(part) == recorded.inner_text(part)


def test_a_visitor_who_wants_no_motion_sees_the_whole_episode_at_rest(browser: Browser, address: str) -> None:
    page = visit(browser, address, reduced_motion="reduce")
    expect(page.locator("#result")).to_be_visible()
    assert time_of(page) == 200
    expect(page.locator("#play")).to_have_text("Play")
