"""Playing: agents against each other, a visitor against an agent, addresses that bring a moment back."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image, ImageSequence
from playwright.sync_api import Browser, Page, expect

from llmserve_env.engine.knobs import KNOB
from llmserve_env.env.episode import MAX_SEED
from llmserve_env.tasks.catalog import load_task
from tests.browser.conftest import idle, pause, time_of, visit

pytestmark = pytest.mark.browser
EASY = "?task=static_workload&seed=42"


def step(page: Page, times: int = 1) -> None:
    for _ in range(times):
        before = time_of(page)
        page.click("#step")
        expect(page.locator("#line")).to_have_value(str(before + 1))
        idle(page)


def figures(page: Page) -> list[str]:
    return [page.inner_text(part) for part in ("#clock", "#card-a dl", "#card-b dl", "#strips", "#charts")]


def test_two_visitors_do_not_disturb_each_other(browser: Browser, address: str) -> None:
    one, two = (visit(browser, address, f"{EASY}&a=you&b=heuristic") for _ in range(2))
    step(one, 3)
    two.select_option("#task", "bursty_workload")
    expect(two.locator("#task-text")).to_contain_text("bursts")
    pause(two)
    two.click("#restart")
    step(two)
    step(one)
    assert (time_of(one), time_of(two)) == (4, 1)


@pytest.mark.parametrize("players", [("ppo", "heuristic"), ("planner", "random")], ids=" against ".join)
def test_two_agents_play_to_their_grades(browser: Browser, address: str, players: tuple[str, str]) -> None:
    page = visit(browser, address, f"{EASY}&a={players[0]}&b={players[1]}&t=5")
    page.click("#end")
    expect(page.locator("#result")).to_be_visible()
    assert time_of(page) == 200
    expect(page.locator("#play")).to_be_disabled()
    for side in "ab":
        expect(page.locator(f"#card-{side} .score")).to_contain_text("Score")
    assert page.inner_text("#result h2").endswith("points")


def test_the_grade_table_is_in_points_that_add_up_and_has_no_empty_cell(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=ppo&b=heuristic&t=200")
    rows = [
        [cell.inner_text() for cell in row.locator("th, td").all()] for row in page.locator("#result tbody tr").all()
    ]
    sums = [cell.inner_text() for cell in page.locator("#result tfoot td").all()]
    assert all(cell for row in rows for cell in row)
    for column, total in enumerate(sums, start=1):
        assert abs(sum(float(row[column]) for row in rows) - float(total)) <= 0.05 * len(rows) + 0.05
    assert sums[0] == "100.0"


def test_me_against_ppo_is_stepped_with_my_knobs(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=you&b=ppo")
    expect(page.locator("#turning")).to_have_text("Your knobs")
    page.fill("#knob-batch_cap", "96")
    step(page, 2)
    page.fill("#knob-batch_cap", "24")
    step(page)
    assert page.locator("#strips .strip").first.locator(".values .lane-a").inner_text() == "24"
    page.click("#play")
    page.wait_for_function("document.getElementById('line').value >= 6")
    pause(page)


def test_two_quick_clicks_are_two_steps(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=you&b=ppo")
    page.dblclick("#step")
    expect(page.locator("#line")).to_have_value("2")
    idle(page)
    step(page)
    assert page.evaluate("location.search").endswith("&played=3")


def test_taking_over_continues_the_agents_episode_with_my_knobs(browser: Browser, address: str) -> None:
    page = visit(browser, address, "?task=adversarial_multitenant&seed=42&a=ppo&b=heuristic&t=30")
    before = figures(page)
    page.click("#take-over")
    expect(page.locator("#turning")).to_have_text("Your knobs")
    idle(page)
    assert figures(page) == before
    page.fill("#knob-batch_cap", "77")
    step(page)
    assert page.locator("#strips .strip").first.locator(".values .lane-a").inner_text() == "77"


def test_an_address_brings_back_task_seed_players_moment_and_my_moves(browser: Browser, address: str) -> None:
    page = visit(browser, address, "?task=adversarial_multitenant&seed=7&a=ppo&b=tuned&t=20")
    page.click("#take-over")
    expect(page.locator("#turning")).to_have_text("Your knobs")
    idle(page)
    page.fill("#knob-batch_cap", "77")
    step(page, 2)
    page.check("#knob-prefill_decode_split")
    step(page, 3)
    again = visit(browser, address, page.evaluate("location.search"))
    expect(again.locator("#line")).to_have_value("25")
    assert figures(again) == figures(page)
    assert again.evaluate("location.search") == page.evaluate("location.search")


def test_an_address_that_cannot_be_obeyed_says_why_and_leaves_something_to_watch(
    browser: Browser, address: str
) -> None:
    for query, reason in {
        "?task=no_such_task": "There is no task “no_such_task” here",
        "?task=static_workload&a=nobody": "There is no player “nobody”",
        "?task=static_workload&seed=-5": "seed",
        "?task=static_workload&a=you&moves=[[": "moves that cannot be read",
    }.items():
        page = visit(browser, address, query)
        expect(page.locator("#alert")).to_contain_text(reason)
        page.wait_for_function("document.getElementById('line').value >= 2")
        expect(page.locator("#alert")).to_be_visible()


def test_a_change_that_fails_leaves_the_choices_as_they_are_in_force(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=ppo&b=heuristic&t=40")
    page.route(f"{address}/reset", lambda route: route.fulfill(status=503, json={"detail": "the server is busy"}))
    page.select_option("#player-b", "tuned")
    expect(page.locator("#alert")).to_have_text("the server is busy")
    idle(page)
    assert (page.input_value("#player-b"), time_of(page)) == ("heuristic", 40)


def test_an_address_may_name_only_the_players(browser: Browser, address: str) -> None:
    page = visit(browser, address, "?a=heuristic&b=random&t=3")
    expect(page.locator("#source")).to_have_text("Live simulation")
    assert (page.input_value("#player-a"), page.input_value("#player-b"), time_of(page)) == ("heuristic", "random", 3)


def test_a_players_description_is_a_sentence_that_begins_with_a_capital(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=you&b=heuristic&t=3")
    for player in ("heuristic", "tuned", "ppo"):
        page.select_option("#player-b", player)
        expect(page.locator("#player-b")).to_have_value(player)
        idle(page)
        for side in "ab":
            assert page.inner_text(f"#card-{side} .does")[0].isupper()


def test_changing_a_player_keeps_the_moment(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=ppo&b=heuristic&t=40")
    page.select_option("#player-b", "tuned")
    expect(page.locator("#card-b .does")).to_contain_text("constant")
    idle(page)
    assert time_of(page) == 40


def test_a_value_out_of_range_is_refused_in_sight_and_the_knob_keeps_its_value(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=you&b=heuristic")
    alert, knob = page.locator("#alert"), page.locator("#knob-batch_cap")
    limit = int(KNOB["batch_cap"].high)
    for kept, (given, told) in enumerate([("9999", "9999"), ("0", "0"), ("2.5", "2.5"), ("", "nothing")], start=96):
        knob.fill(str(kept))
        knob.press("Enter")
        expect(alert).to_be_hidden()
        knob.fill(given)
        page.click("#step")
        expect(alert).to_have_text(
            f"Batch cap must be a whole number from 1 to {limit}; got {told}. It stays at {kept}."
        )
        expect(alert).to_be_in_viewport()
        assert (knob.input_value(), page.input_value("#knob-batch_cap-range")) == (str(kept), str(kept))
        idle(page)
    assert page.locator("#strips .strip").first.locator(".values .lane-a").inner_text() == "99"


def test_a_bad_seed_is_answered_with_the_seeds_that_are_allowed(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=you&b=heuristic")
    for given in ("-4", str(MAX_SEED + 1)):
        page.fill("#seed", given)
        page.keyboard.press("Enter")
        expect(page.locator("#alert")).to_have_text(
            f"The seed must be a whole number from 0 to {MAX_SEED}; got {given}"
        )
    step(page)


def test_knobs_that_do_not_act_are_disabled_and_say_so(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=you&b=heuristic")
    expect(page.locator("#knob-priority_routing")).to_be_disabled()
    expect(page.locator("#knob-priority_routing-note")).to_contain_text("stays at its default")
    expect(page.locator("#strips .strip:visible")).to_have_count(len(load_task("static_workload").knobs.active))


def test_the_episode_can_be_downloaded(browser: Browser, address: str, tmp_path: Path) -> None:
    page = visit(browser, address, f"{EASY}&a=heuristic&b=random&t=200")
    with page.expect_download() as download:
        page.click("#save-log")
    download.value.save_as(tmp_path / "log.json")
    log = json.loads((tmp_path / "log.json").read_text(encoding="utf-8"))
    assert (log["task_id"], log["seed"], len(log["actions"])) == ("static_workload", 42, 200)
    with page.expect_download() as download:
        page.click("#save-csv")
    download.value.save_as(tmp_path / "figures.csv")
    assert len((tmp_path / "figures.csv").read_text(encoding="utf-8").splitlines()) == 401


def test_a_gif_of_what_was_played_can_be_saved(browser: Browser, address: str, tmp_path: Path) -> None:
    page = visit(browser, address, f"{EASY}&a=ppo&b=heuristic&t=20")
    with page.expect_download() as download:
        page.click("#record")
    download.value.save_as(tmp_path / "clip.gif")
    with Image.open(tmp_path / "clip.gif") as clip:
        assert (clip.format, clip.size, clip.info["loop"]) == ("GIF", (800, 450), 0)
        frames = [frame.convert("RGB").tobytes() for frame in ImageSequence.Iterator(clip)]
    assert len(frames) >= 20
    assert all(one != other for one, other in pairwise(frames))
    expect(page.locator("#record")).to_have_text("Save GIF")


def test_a_link_can_be_copied(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=ppo&b=heuristic&t=20", permissions=["clipboard-read", "clipboard-write"])
    page.click("#share")
    expect(page.locator("#said")).to_contain_text("Link copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_where_copying_is_forbidden_the_link_is_shown(browser: Browser, address: str) -> None:
    page = visit(browser, address, f"{EASY}&a=ppo&b=heuristic&t=20")
    page.evaluate("void (navigator.clipboard.writeText = () => Promise.reject(new Error('forbidden')))")
    page.click("#share")
    expect(page.locator("#link")).to_be_focused()
    assert page.input_value("#link") == page.url
