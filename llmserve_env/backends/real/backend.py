"""A live engine as the backend of an episode, in real time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.accounting import WindowBook
from llmserve_env.backends.backend import Mode
from llmserve_env.backends.real.arrivals import Arrivals
from llmserve_env.backends.real.load import Event, Happening, LoadPlayer
from llmserve_env.backends.real.provider import Applied, Gauges, Provider
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.spending import Budget
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.engine.layout import FINISHED
from llmserve_env.errors import EpisodeStateError, ProviderError
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.tasks.task import Task
from llmserve_env.units import PS_PER_MS, PS_PER_S, s_to_ps
from llmserve_env.workloads import sample

PROVIDERS = {"openai": "openai_provider.OpenAIProvider", "vllm": "vllm_provider.VllmProvider"}
"""Where each provider is defined; loaded when it is used, because an engine in process needs no HTTP library."""
ON_TIME_S = 0.1
"""A step that begins this soon after the end of the last one continues its clock, without a gap between arrivals."""


class LiveBackend:
    """One episode on a live engine. Real time passes while `serve` runs; no request arrives between two windows."""

    mode: Mode = "real"
    num_episodes = 1

    def __init__(
        self, task: Task, settings: RealSettings | None = None, make: Callable[[], Provider] | None = None
    ) -> None:
        self.task, self.settings = task, settings or RealSettings()
        self.stopped: str | None = None
        self._make = make or partial(_provider_class(self.settings.provider), self.settings)
        is_metered = self.settings.provider == "openai"
        self.window_budget_usd = self.settings.max_usd / task.steps if is_metered else None
        self.window_usd = self._billed_usd = 0.0
        self.book = WindowBook(task.fleet)
        self.window, self.metrics = self.book.window, self.book.metrics
        self.provider: Provider | None = None
        self.player: LoadPlayer | None = None
        self._arrivals: Arrivals | None = None
        self._number: dict[int, int] = {}
        """Row of the request table -> number in the book; requests that were not sent have none."""
        self._failures: dict[str, int] = {}
        self._num_windows = 0
        self.origin_s = self._closed_at_s = self._ends_at_s = self._paused_s = 0.0
        self._gauges = Gauges(0, 0)
        self._applied = Applied({})

    @property
    def fixed_knobs(self) -> Collection[str]:
        return self._applied.unsupported

    def reset(self, index: int, seed: int) -> None:
        """Start from the beginning; raises if the engine does not answer or refuses the settings."""
        self.close()
        provider = self._make()
        provider.check()
        self.provider, self.player = provider, LoadPlayer(provider, Budget(self.settings))
        requests = sample(self.task.workload, seed)
        self._arrivals = Arrivals(self.task, self.settings, requests, seed)
        # A first window without requests: whatever has to be compiled is compiled before the clock starts.
        self.book.reset(0)
        self.book.close_window(1)
        self.book.reset(len(requests))
        self.stopped, self._number, self._failures = None, {}, {}
        self.window_usd = self._billed_usd = 0.0
        self._num_windows = 0
        self._applied = provider.apply(mapping_from_knobs(self.task.default_knobs.tolist()))
        self._gauges = provider.gauges()
        self.origin_s = self._closed_at_s = self._ends_at_s = time.monotonic()

    def serve(self, knobs: Array) -> None:
        """Serve one window in real time; a ProviderError ends the episode with its reason."""
        provider, player = self.provider, self.player
        if provider is None or player is None:
            raise EpisodeStateError("reset the episode before its first step")
        try:
            self._applied = provider.apply(mapping_from_knobs(knobs[0].tolist()))
            self._send(player)
            self._count(provider, player)
        except ProviderError as error:
            self.close(str(error))
            raise
        self._num_windows += 1
        self.window_usd, self._billed_usd = player.budget.spent.usd - self._billed_usd, player.budget.spent.usd
        self.stopped = player.budget.reached
        if self.stopped is not None or self._num_windows >= self.task.steps:
            self.close()

    def close(self, reason: str | None = None) -> None:
        """Cancel what is under way and release the engine. A reason ends the episode; records stay readable."""
        self.stopped = self.stopped or reason
        self.provider = None
        if self.player is not None:
            self.player.stop()

    def request_times(self) -> dict[int, tuple[int, int, int]]:
        """Row of the request table -> its arrival, first and last token in picoseconds; -1 for what did not happen."""
        requests, progress = self.book.requests, self.book.progress
        times = zip(
            requests["arrival_at_ps"].tolist(),
            progress["first_token_at_ps"].tolist(),
            np.where(progress["status"] == FINISHED, progress["finished_at_ps"], -1).tolist(),
            strict=True,
        )
        return dict(zip(self._number, times, strict=True))

    def _send(self, player: LoadPlayer) -> None:
        """Open the window, send its requests when they are due, and wait for its end."""
        assert self._arrivals is not None
        now_s = time.monotonic()
        opened_at_s = self._ends_at_s if now_s - self._ends_at_s < ON_TIME_S else now_s
        self._paused_s, self._ends_at_s = opened_at_s - self._ends_at_s, opened_at_s + self._arrivals.window_s
        calls = self._arrivals.due(self._num_windows, opened_at_s, player.budget)
        numbers = self.book.arrive(
            [self._ps(call.arrival_at_s) for call in calls],
            [call.prompt_tokens for call in calls],
            [call.priority for call in calls],
            [s_to_ps(call.slo_s) for call in calls],
        )
        self._number |= zip((call.index for call in calls), numbers.tolist(), strict=True)
        player.play(calls)
        player.wait_until(self._ends_at_s)

    def _count(self, provider: Provider, player: LoadPlayer) -> None:
        """Close the window: enter what happened into the book, with the engine's own figures."""
        self._failures = dict(player.failures)
        now_s = time.monotonic()
        if player.dead is not None:
            raise player.dead
        if self.stopped is not None:
            raise ProviderError(self.stopped)
        self._note(player.take_events(now_s))
        before, self._gauges = self._gauges, provider.gauges()
        length_ps = self._ps(now_s) - self._ps(self._closed_at_s)
        self.book.close_window(self._ps(now_s), counts=self._counts(before, length_ps), gauges=_readings(self._gauges))
        self._closed_at_s = now_s

    def _note(self, events: Sequence[Event]) -> None:
        """Enter events into the book, each kind at once: there are thousands of tokens in a window."""
        for what in Happening:
            found = [event for event in events if event.what is what]
            numbers = [self._number[event.index] for event in found]
            at_ps = [self._ps(event.at_s) for event in found]
            match what:
                case Happening.TOKENS:
                    self.book.tokens(numbers, at_ps, [event.tokens for event in found])
                case Happening.FINISHED:
                    self.book.finish(numbers, at_ps)
                case Happening.FAILED:
                    self.book.reject(numbers, at_ps)
                case Happening.ABANDONED:
                    self.book.abandon(numbers, at_ps)

    def _counts(self, before: Gauges, length_ps: int) -> dict[str, int]:
        """What the engine counted in this window; a figure it does not report is 0."""
        found = {
            name: max((getattr(self._gauges, name) or 0) - (getattr(before, name) or 0), 0)
            for name in ("preemptions", "drafted_tokens", "accepted_tokens", "iterations")
        }
        busy_s = max((self._gauges.busy_s or 0.0) - (before.busy_s or 0.0), 0.0)
        found |= {"busy_ps": s_to_ps(busy_s), "in_service_ps": length_ps}
        if self._gauges.reserved_kv_fraction is not None:
            fleet = self.task.fleet
            weights, pool = fleet.costs.tiers[0].weight_bytes, fleet.num_blocks(1.0, 0, False) * fleet.block_bytes
            reserved_bytes = weights + int(self._gauges.reserved_kv_fraction * pool)
            found["peak_memory_bytes"] = reserved_bytes
            found["reserved_byte_ms"] = reserved_bytes * (length_ps // PS_PER_MS)
        return found

    def _ps(self, at_s: float) -> int:
        return round((at_s - self.origin_s) * PS_PER_S)

    def outcomes(self, index: int) -> RequestOutcomes:
        """What has become of the requests, from the book."""
        return self.book.outcomes(self.task)

    def details(self) -> dict[str, Any]:
        """What became of the knobs, requests and money, under `real`."""
        player, gauges = self.player, self._gauges
        return {
            "real": {
                "provider": self.settings.provider,
                "model": self.settings.model,
                "in_force": self._applied.in_force,
                "unsupported_knobs": self._applied.unsupported,
                "unmeasured": [name for name, value in asdict(gauges).items() if value is None],
                "failures": self._failures,
                "open_requests": player.num_open if player else 0,
                "not_sent": self._arrivals.not_sent if self._arrivals else 0,
                "shortened": self._arrivals.shortened if self._arrivals else 0,
                "spent": asdict(player.budget.spent) if player else {},
                "paused_s": round(self._paused_s, 4),
                "stopped": self.stopped,
            }
        }


def _provider_class(name: str) -> Callable[[RealSettings], Provider]:
    module, kind = PROVIDERS[name].split(".")
    found: Callable[[RealSettings], Provider] = getattr(import_module(f"llmserve_env.backends.real.{module}"), kind)
    return found


def _readings(gauges: Gauges) -> dict[str, float]:
    """The engine's gauges by the names of the metrics; a figure it does not report is 0."""
    return {
        "queue_depth": gauges.queue_depth,
        "active_requests": gauges.active_requests,
        "kv_cache_occupancy": gauges.kv_cache_occupancy or 0.0,
        "available_replicas": 1.0,
        "tier_progress": 1.0,
    }
