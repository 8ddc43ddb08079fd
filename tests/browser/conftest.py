"""A server and Debian's Chromium for the browser tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.running import RunningServer
from tools.chromium import chromium

TIMEOUT_MS = 60_000
COMPILE_TIMEOUT_S = 600
DESKTOP = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """A server of its own, with OpenEnv's console."""
    with RunningServer("memory", LLMSERVE_OPENENV_CONSOLE="true") as server:
        # In a fresh checkout this compiles the kernels, for which no visitor should have to wait.
        httpx.get(f"{server.url}/baseline", timeout=COMPILE_TIMEOUT_S).raise_for_status()
        yield server.url


@pytest.fixture(scope="module")
def shared_browser() -> Iterator[Browser]:
    """One browser for all tests of a module."""
    with chromium() as opened:
        yield opened


@pytest.fixture
def browser(shared_browser: Browser) -> Iterator[Browser]:
    """The browser; every visitor has a context of their own in it, and leaves with the end of the test."""
    yield shared_browser
    for context in shared_browser.contexts:
        context.close()


def new_page(browser: Browser, size: dict[str, int] = DESKTOP, **options: Any) -> Page:
    """A visitor who has not opened anything yet."""
    page = browser.new_context(viewport=size, accept_downloads=True, **options).new_page()  # type: ignore[arg-type]
    page.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    return page


def visit(browser: Browser, address: str, query: str = "", size: dict[str, int] = DESKTOP, **options: Any) -> Page:
    """A visitor with the page open and the simulator at their disposal."""
    page = new_page(browser, size, **options)
    page.goto(f"{address}/web{query}")
    expect(page.locator("#task")).to_be_enabled()
    idle(page)
    return page


def idle(page: Page) -> None:
    """Wait until the page has nothing under way."""
    expect(page.locator("#dashboard")).to_have_attribute("aria-busy", "false")


def time_of(page: Page) -> int:
    """The step that the page shows."""
    return int(page.input_value("#line"))


def pause(page: Page) -> None:
    """Stop the time, wherever it is."""
    if page.inner_text("#play") == "Pause":
        page.click("#play")
    expect(page.locator("#play")).to_have_text("Play")
    idle(page)
