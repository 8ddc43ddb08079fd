"""Which pages there are, and that none of them needs another machine."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import new_page, visit

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("path", "is_there"), [("/web", "#charts canvas"), ("/docs", "#operations details")])
def test_it_asks_nothing_of_other_machines(browser: Browser, address: str, path: str, is_there: str) -> None:
    page = new_page(browser)
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}{path}")
    expect(page.locator(is_there).first).to_be_visible()
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert problems == []


def test_the_description_names_every_operation_and_can_try_them(browser: Browser, address: str) -> None:
    page = new_page(browser)
    page.goto(f"{address}/docs#post-reset")
    described = httpx.get(f"{address}/openapi.json").json()["paths"]
    operations = [(method.upper(), path) for path, methods in described.items() for method in methods]
    expect(page.locator("#operations details")).to_have_count(len(operations))
    listed = page.inner_text("#contents")
    assert [one for one in operations if f"{one[0]} {one[1]}" not in listed] == []
    page.locator("#post-reset textarea").fill('{"task_id": "bursty_workload", "seed": 42}')
    page.locator("#post-reset button").click()
    expect(page.locator("#post-reset-answer")).to_contain_text("Answer 200")
    expect(page.locator("#post-reset-answer")).to_contain_text("bursty_workload")


def test_the_description_begins_with_the_calls_that_every_client_makes(browser: Browser, address: str) -> None:
    page = new_page(browser)
    page.goto(f"{address}/docs")
    expect(page.locator("#operations details").first).to_be_visible()
    for part in ("#contents a", "#operations summary code"):
        listed = page.locator(part).all_inner_texts()
        assert [one.split()[-1] for one in listed[:2]] == ["/reset", "/step"]


def test_no_cell_of_the_description_is_empty(browser: Browser, address: str) -> None:
    page = new_page(browser)
    page.goto(f"{address}/docs")
    expect(page.locator("#operations details").first).to_be_visible()
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    expect(page.locator("#operations form").last).to_be_visible()
    empty = "cells => cells.filter((cell) => !cell.textContent.trim()).map((cell) => cell.parentElement.textContent)"
    assert page.eval_on_selector_all("#operations td", empty) == []


def test_the_console_of_openenv_is_a_tab(browser: Browser, address: str) -> None:
    page = visit(browser, address)
    page.click("#tab-console")
    frame = page.frame_locator("iframe")
    frame.get_by_role("button", name="Reset").click()
    expect(frame.get_by_text("static_workload").first).to_be_visible()


def test_the_ways_to_the_page_lead_there(browser: Browser, address: str) -> None:
    for path in ("/", "/demo", "/web/"):
        page = new_page(browser)
        page.goto(address + path)
        expect(page.locator("h1")).to_have_text("LLMServeEnv")
