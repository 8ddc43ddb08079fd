"""A server and Debian's Chromium for the browser tests."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.chromium import chromium
from tests.server.running import RunningServer

TIMEOUT_MS = 60_000
COMPILE_TIMEOUT_S = 600


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """A server of its own, with OpenEnv's console."""
    with RunningServer("memory", LLMSERVE_OPENENV_CONSOLE="true") as server:
        # In a fresh checkout this compiles the kernels, for which no visitor should have to wait.
        httpx.get(f"{server.url}/baseline", timeout=COMPILE_TIMEOUT_S).raise_for_status()
        yield server.url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser; every visitor has a context of their own in it."""
    with chromium() as opened:
        yield opened


def visit(browser: Browser, address: str, width: int = 1280) -> Page:
    """A visitor with the dashboard open and an episode started; a script error fails the test."""
    page = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True).new_page()
    page.set_default_timeout(TIMEOUT_MS)
    expect.set_options(timeout=TIMEOUT_MS)
    page.goto(f"{address}/web")
    page.wait_for_function("!document.getElementById('step').disabled")
    idle(page)
    return page


def idle(page: Page) -> None:
    """Wait until the page has nothing under way."""
    expect(page.locator("#dashboard")).to_have_attribute("aria-busy", "false")
