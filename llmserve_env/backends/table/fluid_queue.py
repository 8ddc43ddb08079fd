"""A queue served at the table's rate: requests of the task wait, share the rate evenly while they run, and finish.

Everything is pooled over replicas. A window is cut into slices; in each the batch that is running sets the rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.table.lookup import BatchCurve, TableWindow
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_MS, PS_PER_S

SLICES = 20
"""Parts of a window within which the running batch counts as constant."""


@dataclass(slots=True)
class ServedWindow:
    """What happened in one window; requests by row of the table."""

    arrived: Array
    started: list[Array] = field(default_factory=list)
    """Requests that left the queue for the first time."""
    waits_ms: list[Array] = field(default_factory=list)
    """Their time in the queue."""
    rejected: list[Array] = field(default_factory=list)
    """Requests that found no room in the queue."""
    abandoned: list[Array] = field(default_factory=list)
    """Requests whose clients left before their first token."""
    finished: int = 0
    output_tokens: float = 0.0
    busy_gpu_s: float = 0.0
    peak_memory_gb: float = 0.0
    is_out_of_memory: bool = False
    busiest: TableWindow | None = None
    """Figures of the largest batch that ran, or of the smallest possible one when none did."""


class FluidQueue:
    """The requests of one episode, first come first served."""

    def __init__(self, requests: RequestTable, num_replicas: int, waiting_room: tuple[int, ...]) -> None:
        self.requests = requests
        self.num_replicas = num_replicas
        self.room = np.array(waiting_room) * num_replicas
        self.waiting: Array = np.zeros(0, np.int64)
        self.running: Array = np.zeros(0, np.int64)
        self.remaining = requests.output_tokens.astype(float)
        self.has_started = np.zeros(len(requests), bool)
        self.next_arrival = 0
        self._unfit: TableWindow | None = None

    def make_room(self, figures: TableWindow) -> None:
        """Check that the largest batch of the next window fits; nothing is served in it otherwise."""
        self._unfit = figures if figures.is_out_of_memory else None

    def serve(
        self, curve: BatchCurve, batch_cap: int, start_ps: int, end_ps: int, jitter: tuple[float, float]
    ) -> ServedWindow:
        """One window under one configuration."""
        until = int(np.searchsorted(self.requests.arrival_at_ps, end_ps, side="left"))
        served = ServedWindow(np.arange(self.next_arrival, until))
        if self._unfit is not None:
            served.busiest, served.peak_memory_gb = self._unfit, self._unfit.gpu_mem_gb
            self._lose_batch(served)
        edges_ps = np.linspace(start_ps, end_ps, SLICES + 1)
        for begin_ps, slice_end_ps in pairwise(edges_ps):
            self._run(served, curve, (slice_end_ps - begin_ps) / PS_PER_S, jitter)
            self._arrive(served, slice_end_ps)
            self._abandon(served, slice_end_ps)
            if not served.is_out_of_memory:
                self._start(served, batch_cap, begin_ps)
        return served

    def _run(self, served: ServedWindow, curve: BatchCurve, slice_s: float, jitter: tuple[float, float]) -> None:
        """Give running requests their shares of this slice's tokens; a batch that does not fit returns to the queue."""
        busy = min(len(self.running), self.num_replicas)
        batch = len(self.running) / busy if busy else 0.0
        smallest = float(curve.batch_size[0])
        figures = curve.at(max(batch, smallest), jitter)
        if served.busiest is None or figures.gpu_mem_gb > served.peak_memory_gb:
            served.busiest = figures
        served.peak_memory_gb = max(served.peak_memory_gb, figures.gpu_mem_gb)
        if served.is_out_of_memory or not busy:
            return
        if figures.is_out_of_memory:
            self._lose_batch(served)
            return
        # Batches below the table's smallest run at the speed per request of that one.
        per_request = figures.tps / max(batch, smallest) * slice_s
        left = self.remaining[self.running]
        served.output_tokens += float(np.minimum(left, per_request).sum())
        self.remaining[self.running] = left - per_request
        is_done = left <= per_request
        served.finished += int(is_done.sum())
        served.busy_gpu_s += busy * slice_s
        self.running = self.running[~is_done]

    def _lose_batch(self, served: ServedWindow) -> None:
        served.is_out_of_memory = True
        self.waiting = np.sort(np.concatenate((self.running, self.waiting)))
        self.running = self.running[:0]

    def _arrive(self, served: ServedWindow, until_ps: float) -> None:
        """Requests of this slice join the queue while their class has room in it."""
        stop = int(np.searchsorted(self.requests.arrival_at_ps, until_ps, side="left"))
        new = np.arange(self.next_arrival, stop)
        self.next_arrival = stop
        fits = np.ones(len(new), bool)
        for k, room in enumerate(self.room):
            of_class = self.requests.priority[new] == k
            free = room - int((self.requests.priority[self.waiting] == k).sum())
            fits &= ~of_class | (np.cumsum(of_class) <= free)
        served.rejected.append(new[~fits])
        self.waiting = np.concatenate((self.waiting, new[fits]))

    def _abandon(self, served: ServedWindow, now_ps: float) -> None:
        """Clients whose patience has ended leave, unless they already have a token."""
        age_ps = now_ps - self.requests.arrival_at_ps[self.waiting]
        gone = (age_ps >= self.requests.patience_ps[self.waiting]) & ~self.has_started[self.waiting]
        served.abandoned.append(self.waiting[gone])
        self.waiting = self.waiting[~gone]

    def _start(self, served: ServedWindow, batch_cap: int, slice_start_ps: float) -> None:
        """The head of the queue fills the batch; a request that arrives in this slice and finds room has not waited."""
        free = max(batch_cap * self.num_replicas - len(self.running), 0)
        chosen, self.waiting = self.waiting[:free], self.waiting[free:]
        self.running = np.concatenate((self.running, chosen))
        fresh = chosen[~self.has_started[chosen]]
        self.has_started[fresh] = True
        served.started.append(fresh)
        served.waits_ms.append(np.maximum(slice_start_ps - self.requests.arrival_at_ps[fresh], 0.0) / PS_PER_MS)
