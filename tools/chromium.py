"""Chromium, for the browser tests and for programs that look at the page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. While it is open an event loop runs in this thread, so keep it no longer than a module's tests."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium; `make browser` installs it"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()
