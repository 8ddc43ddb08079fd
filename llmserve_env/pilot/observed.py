"""An engine that is only watched, as the backend of the step loop: its readings become window records.

Metrics do not tell requests apart, so every request counts as one of the task's first class.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.accounting import WindowBook
from llmserve_env.backends.backend import Mode
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import EpisodeStateError
from llmserve_env.pilot.readings import Reading
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.tasks.task import Task
from llmserve_env.units import NEVER_PS, s_to_ps

MAX_ROWS = 4_096
"""Requests that are kept before the finished ones are forgotten."""


class ObservedEngine:
    """One endless episode of a task, whose windows somebody else serves."""

    mode: Mode = "real"
    num_episodes = 1
    stopped: str | None = None
    window_budget_usd: float | None = None
    window_usd = 0.0
    fixed_knobs: Collection[str] = ()

    def __init__(self, task: Task) -> None:
        self.task = task
        self.book = WindowBook(task.fleet)
        self.window, self.metrics = self.book.window, self.book.metrics
        self._reading: Reading | None = None
        self._origin_s: float | None = None

    def reset(self, index: int, seed: int) -> None:
        """Forget everything."""
        self.book.reset(MAX_ROWS)
        self._origin_s = None

    def present(self, reading: Reading) -> None:
        """Set the window that `serve` records next."""
        self._reading = reading

    def serve(self, knobs: Array) -> None:
        """Record the window that was presented."""
        reading, self._reading = self._reading, None
        if reading is None:
            raise EpisodeStateError("present the reading of the window before it is recorded")
        if self._origin_s is None:
            self._origin_s = reading.started_at_s
            self.book.close_window(1)
        if self.book.num_requests + len(reading.ttft_s) > MAX_ROWS:
            self.book.forget_requests()
        end_ps = s_to_ps(reading.ended_at_s - self._origin_s) + 2
        self._enter(reading, end_ps)
        self.book.close_window(end_ps, counts=self._counts(reading), gauges=self._gauges(reading))

    def _enter(self, reading: Reading, end_ps: int) -> None:
        """Requests whose first token came in this window, as the histogram describes them."""
        service = self.task.workload.classes[0]
        slo_ps = NEVER_PS if service.ttft_slo_ms is None else s_to_ps(service.ttft_slo_ms / 1e3)
        # Arrivals are entered in order; the longest wait began first.
        waits_s = sorted(reading.ttft_s, reverse=True)
        mean_prompt = round(reading.prompt_tokens / max(reading.first_tokens, 1))
        arrivals = [max(end_ps - s_to_ps(wait), 0) for wait in waits_s]
        numbers = self.book.arrive(
            arrivals, [max(mean_prompt, 1)] * len(waits_s), [0] * len(waits_s), [slo_ps] * len(waits_s)
        )
        self.book.tokens(numbers, np.full(len(numbers), end_ps), np.zeros(len(numbers), np.int64))
        self.book.finish(numbers, np.full(len(numbers), end_ps))
        for gap_s in reading.gap_s:
            self.book.gaps(s_to_ps(gap_s), max(reading.output_tokens // len(reading.gap_s), 1))

    def _counts(self, reading: Reading) -> dict[str, int]:
        length_ps = s_to_ps(reading.length_s)
        return {
            "arrived": reading.arrived,
            "arrived_prompt_tokens": round(reading.arrived * reading.prompt_tokens / max(reading.first_tokens, 1)),
            "output_tokens": reading.output_tokens,
            "preemptions": reading.preemptions,
            "busy_ps": s_to_ps(reading.busy_share * reading.length_s),
            "in_service_ps": length_ps,
        }

    def _gauges(self, reading: Reading) -> dict[str, float]:
        longest_ms = 1e3 * max(reading.ttft_s, default=reading.length_s)
        return {
            "queue_depth": reading.queue_depth,
            "active_requests": reading.active_requests,
            "kv_cache_occupancy": reading.kv_cache_occupancy,
            "oldest_wait_ms": longest_ms if reading.queue_depth else 0.0,
            "available_replicas": 1.0,
            "tier_progress": 1.0,
        }

    def outcomes(self, index: int) -> RequestOutcomes:
        """Raise an error: metrics do not describe single requests."""
        raise EpisodeStateError("metrics do not tell what became of single requests")

    def details(self) -> dict[str, Any]:
        """Return nothing: there is nothing to add to the window."""
        return {}

    def close(self, reason: str | None = None) -> None:
        """Do nothing: there is nothing to release."""


class Watch:
    """The step loop of an engine that is watched: readings go in, the view of an agent comes out."""

    def __init__(self, task: Task, knobs: Mapping[str, Any]) -> None:
        self.engine = ObservedEngine(task)
        self.batch = EpisodeBatch(self.engine)
        self.batch.reset(0, 0)
        self.set_knobs(knobs)

    def set_knobs(self, knobs: Mapping[str, Any]) -> None:
        """Set the configuration in force; knobs that are not named keep their values."""
        names = [name for name in self.batch.control.dtype["knobs"].names or () if name in knobs]
        for name in names:
            self.batch.control["knobs"][name] = float(knobs[name])

    def see(self, reading: Reading) -> None:
        """Record a window that was served under the configuration in force."""
        self.engine.present(reading)
        self.batch.step(self.batch.knobs.copy())
        control, half = self.batch.control[0], self.engine.task.steps // 2
        if control["step"] > half:
            # An endless episode always reports its middle, so that no policy expects the end.
            control["changed_at_step"] = np.where(control["changed_at_step"] > 0, control["changed_at_step"] - 1, -1)
            control["step"] = half
