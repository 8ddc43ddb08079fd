"""The page of a fleet's episode in a real browser: every picture is drawn, and nothing sticks out on a phone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from llmserve_env.fleet.timeline import play_timeline
from llmserve_env.planning.fleet_page import fleet_page
from tests.browser.conftest import DESKTOP, PHONE, new_page
from tests.browser.test_accessibility import problems as axe_problems
from tests.fleet.small import random_decision, small_task, traffic_of

pytestmark = pytest.mark.browser
READABLE_PX = 600.0
"""A picture of six hours that is narrower than this has labels that nobody can read; on a phone it scrolls sideways."""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task, rng = small_task("pd_pools", steps=130), np.random.default_rng(0)
    timeline = play_timeline(task, traffic_of(task, 7), lambda _: random_decision(task, rng))
    path = tmp_path_factory.mktemp("fleet") / "page.html"
    path.write_text(fleet_page(timeline, "random", "a command"), encoding="utf-8")
    return path


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_picture_of_the_fleets_page_is_drawn_and_fits(
    browser: Browser, page_file: Path, size: dict[str, int]
) -> None:
    page = new_page(browser, size)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(page_file.as_uri())
    expect(page.locator("#replicas img")).to_have_count(2)
    drawn = page.eval_on_selector_all("img", "all => all.map((one) => one.complete && one.naturalWidth > 0)")
    assert len(drawn) == 6
    assert all(drawn)
    widths = page.eval_on_selector_all("img", "all => all.map((one) => one.getBoundingClientRect().width)")
    assert min(widths) >= READABLE_PX
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    expect(page.locator("#dollars tbody tr")).to_have_count(3)
    assert problems == []
    assert axe_problems(page) == []
