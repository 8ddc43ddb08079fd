"""The engine that a pilot steers: metrics over HTTP, limits through the folder that its scheduler reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import httpx

from llmserve_env.backends.real.guard import fetch_text, quoted
from llmserve_env.backends.real.plugin.llmserve_steering.control import (
    WANTED,
    Status,
    Wanted,
    read_status,
    read_wanted,
    write_wanted,
)
from llmserve_env.errors import ProviderError
from llmserve_env.pilot.readings import Scrape, parse_scrape

READ_TIMEOUT_S = 5.0
LIMITS = ("batch_cap", "token_budget", "kv_budget_fraction", "speculation_depth")


class EngineLink(Protocol):
    """What the pilot needs of an engine."""

    def scrape(self) -> Scrape:
        """The metrics now; ProviderError if they cannot be read."""

    def status(self) -> Status:
        """What the scheduler does now."""

    def apply(self, knobs: Mapping[str, Any]) -> None:
        """Ask for these limits from the next iteration on."""


class VllmLink:
    """A vLLM with the steering plug-in."""

    def __init__(self, url: str, control_dir: Path) -> None:
        self._metrics_url = url.rstrip("/").removesuffix("/v1") + "/metrics"
        self._folder = control_dir
        self._http = httpx.Client(timeout=READ_TIMEOUT_S)

    def scrape(self) -> Scrape:
        try:
            page = fetch_text(self._http, self._metrics_url, READ_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise ProviderError(f"{self._metrics_url} does not answer: {quoted(repr(error))}") from None
        return parse_scrape(page, time.monotonic())

    def status(self) -> Status:
        try:
            return read_status(self._folder)
        except (OSError, ValueError, KeyError) as error:
            raise ProviderError(
                f"no steering scheduler writes to {self._folder}: start vLLM with the steering plug-in and that folder "
                f"in LLMSERVE_REAL_CONTROL_DIR ({error})"
            ) from error

    def apply(self, knobs: Mapping[str, Any]) -> None:
        try:
            before = read_wanted(self._folder) if (self._folder / WANTED).exists() else Wanted()
            limits = {name: knobs[name] for name in LIMITS if name in knobs}
            write_wanted(self._folder, replace(before, generation=before.generation + 1, **limits))
        except (OSError, ValueError, TypeError) as error:
            raise ProviderError(f"{self._folder} does not take new limits: {error}") from error

    def close(self) -> None:
        """Close the connection; the engine keeps its limits."""
        self._http.close()


def in_force(status: Status) -> dict[str, Any]:
    """The limits that the scheduler obeys, by the names of the knobs."""
    return {
        "batch_cap": status.batch_cap,
        "token_budget": status.token_budget,
        "kv_budget_fraction": round(1.0 - status.withheld_blocks / status.num_blocks, 4),
        "speculation_depth": status.speculation_depth,
    }
