"""Window accounting for backends other than the simulator, by the simulator's definitions (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from llmserve_env.arrays import Array
from llmserve_env.backends.outcomes import outcomes_of
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.kernels.bookkeeping import (
    ABANDON,
    EVENT_DTYPE,
    FINISH,
    GAPS,
    REJECT,
    TOKENS,
    record_window,
)
from llmserve_env.engine.kernels.measure import measure
from llmserve_env.engine.layout import TTFT_RING
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.engine.state import bytes_of, engine_tables, pristine_state, records
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.tasks.task import Task
from llmserve_env.units import NEVER_PS

_FIXED = ("environment", "replicas", "window")
"""Records whose size does not depend on the number of requests."""


class WindowBook:
    """The window records of one episode. Requests are numbered in the order of their arrival.

    Between two calls of `close_window` the backend reports arrivals and events; `close_window` turns them into the
    window's counters and metrics with the compiled functions that the simulator itself uses.
    """

    def __init__(self, fleet: Deployment) -> None:
        self._fleet = replace(fleet, prefix_caching=False)
        self._tables = engine_tables(self._fleet, False)
        self._state = pristine_state(self._fleet, 0)
        self._events: list[Array] = []
        self.num_requests = 0
        self.window = self._state.window
        self.metrics = records((1,), METRICS_DTYPE)
        self._waits = np.empty(TTFT_RING, np.int64)

    def reset(self, max_requests: int) -> None:
        """Start at time zero, with room for this many requests."""
        fresh = pristine_state(self._fleet, max_requests)
        for name in _FIXED:
            bytes_of(getattr(self._state, name))[...] = bytes_of(getattr(fresh, name))
        self._state = self._state._replace(requests=fresh.requests, progress=fresh.progress)
        self.metrics[:] = np.zeros(1, METRICS_DTYPE)
        self._events, self.num_requests = [], 0

    def forget_requests(self) -> None:
        """Forget all requests, which must be over; averages over windows are kept."""
        fresh = pristine_state(self._fleet, self._state.requests.shape[1])
        self._state = self._state._replace(requests=fresh.requests, progress=fresh.progress)
        self._state.environment[0]["next_arrival"] = 0
        self.num_requests = 0

    @property
    def requests(self) -> Array:
        """Requests that have arrived (`REQUEST_DTYPE`)."""
        requests: Array = self._state.requests[0, : self.num_requests]
        return requests

    @property
    def progress(self) -> Array:
        """Progress of the requests that have arrived (`PROGRESS_DTYPE`), as of the last closed window."""
        progress: Array = self._state.progress[0, : self.num_requests]
        return progress

    def outcomes(self, task: Task) -> RequestOutcomes:
        """What has become of the requests, as of the last closed window."""
        return outcomes_of(task, self.requests, self.progress, int(self._state.environment[0]["now_ps"]))

    def arrive(self, at_ps: ArrayLike, prompt_tokens: ArrayLike, priority: ArrayLike, slo_ps: ArrayLike) -> Array:
        """Clients send requests, in order of time; returns their numbers."""
        at = np.atleast_1d(np.asarray(at_ps, np.int64))
        numbers = np.arange(self.num_requests, self.num_requests + len(at))
        rows = self._state.requests[0, self.num_requests : self.num_requests + len(at)]
        if len(rows) != len(at):
            raise ValueError(f"the book has room for {self._state.requests.shape[1]} requests; make room at reset")
        rows["arrival_at_ps"], rows["prompt_tokens"], rows["priority"] = at, prompt_tokens, priority
        rows["slo_at_ps"] = at + np.minimum(slo_ps, NEVER_PS - at)
        rows["deadline_at_ps"] = NEVER_PS
        self.num_requests += len(at)
        return numbers

    def tokens(self, request: ArrayLike, at_ps: ArrayLike, count: ArrayLike) -> None:
        """Tokens reach a client together; the first ones end its wait. A count of 0 reports a first token alone."""
        self._add(TOKENS, request, at_ps, count)

    def gaps(self, gap_ps: int, count: int) -> None:
        """Inter-token gaps of equal length, for a backend that does not follow single tokens."""
        self._add(GAPS, 0, 0, count, gap_ps)

    def finish(self, request: ArrayLike, at_ps: ArrayLike) -> None:
        """A request has all its tokens; its end is the time of the last one."""
        self._add(FINISH, request, at_ps)

    def reject(self, request: ArrayLike, at_ps: ArrayLike) -> None:
        """A request was turned away or failed."""
        self._add(REJECT, request, at_ps)

    def abandon(self, request: ArrayLike, at_ps: ArrayLike) -> None:
        """A client left without a first token."""
        self._add(ABANDON, request, at_ps)

    def _add(self, kind: int, request: ArrayLike, at_ps: ArrayLike, tokens: ArrayLike = 0, gap_ps: int = 0) -> None:
        events = np.zeros(np.size(request), EVENT_DTYPE)
        events["kind"], events["request"], events["at_ps"] = kind, request, at_ps
        events["tokens"], events["gap_ps"] = tokens, gap_ps
        self._events.append(events)

    def _take_events(self) -> Array:
        """The events of the window, in order of time."""
        noted = np.concatenate([np.zeros(0, EVENT_DTYPE), *self._events])
        self._events = []
        events = records(noted.shape, EVENT_DTYPE)
        events[:] = noted[np.argsort(noted["at_ps"], kind="stable")]
        return events

    def close_window(
        self,
        now_ps: int,
        *,
        tier: int = 0,
        counts: Mapping[str, int] | None = None,
        gauges: Mapping[str, float] | None = None,
    ) -> None:
        """Count and measure the window that ends now and began when the last one ended.

        Args:
            now_ps: end of the window.
            tier: precision of the answers that began in it.
            counts: counters that do not follow from events (fields of `WINDOW_DTYPE`).
            gauges: metrics that only the backend can read (fields of `METRICS_DTYPE`).
        """
        events = self._take_events()
        self._state.environment[0]["quantization_tier"] = tier
        record_window(self._state, self.num_requests, events, now_ps)
        for name, value in (counts or {}).items():
            self.window[0][name] = value
        measure(self._tables, self._state, self.metrics, self._waits)
        for name, gauge in (gauges or {}).items():
            self.metrics[0][name] = gauge
