"""Batch jobs that wait to be admitted, for many episodes side by side; they come in loads of equal size."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.task import FleetTask


class Jobs:
    """The backlogs of many episodes, as `Backlog` keeps that of one."""

    def __init__(self, task: FleetTask, arrivals: Array, value_usd: Array) -> None:
        """`arrivals` is [episode, window]."""
        self._spec, self._window_s, self.value_usd = task.batch, task.window_s, value_usd
        episodes = len(arrivals)
        self._arrived = np.concatenate((np.zeros((episodes, 1)), np.cumsum(arrivals, axis=1)), axis=1)
        """Jobs that have arrived before each window."""
        self._next = np.zeros(episodes)
        self._load_at = self._loads(arrivals)

    def _loads(self, arrivals: Array) -> Array:
        """[episode, load]: the window in which each load arrives; far away for those that do not exist."""
        if self._spec is None:
            return np.zeros((len(arrivals), 1))
        loads = np.round(arrivals / self._spec.jobs_per_load).astype(np.int64)
        found = np.full((len(arrivals), int(loads.sum(axis=1).max(initial=0)) + 1), float(arrivals.shape[1]))
        for row, counts in zip(found, loads, strict=True):
            windows = np.repeat(np.arange(len(counts)), counts)
            row[: len(windows)] = windows
        return found

    def admit(self, window: int, share: Array) -> Array:
        """Jobs that the share of the highest rate admits in this window; late ones are dropped."""
        if self._spec is None:
            return np.zeros(len(self._next))
        late = max(window - int(self._spec.deadline_s / self._window_s), 0)
        self._next = np.maximum(self._next, self._arrived[:, late])
        most = share * self._spec.max_admission_rps * self._window_s
        admitted = np.minimum(most, self._arrived[:, window] - self._next)
        self._next = self._next + admitted
        return np.asarray(admitted)

    def waiting(self, window: int) -> Array:
        """Jobs that have arrived and are neither admitted nor expired."""
        return np.asarray(self._arrived[:, window] - self._next)

    def deadline_in_s(self, window: int) -> Array:
        """Until the first deadline of a waiting job; the whole deadline where none waits."""
        if self._spec is None:
            return np.zeros(len(self._next))
        load = np.minimum(self._next // self._spec.jobs_per_load, self._load_at.shape[1] - 1).astype(np.int64)
        arrived_at = np.take_along_axis(self._load_at, load[:, None], axis=1)[:, 0]
        left_s = self._spec.deadline_s - (window - arrived_at) * self._window_s
        return np.where(self.waiting(window) > 0, left_s, self._spec.deadline_s)
