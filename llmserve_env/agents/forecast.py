"""A forecast an operator could make: the workload's description, and what has arrived so far.

Hypothetical episodes are drawn from the description with the forecaster's own seeds. Those whose expected rates
explain the latest arrivals best stand for the future. The true traffic of the episode is never read.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.loading import request_records
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import sample, schedule

FORECAST_SEEDS = range(500_000, 500_048)
"""Seeds of hypothetical traffic, disjoint from those of evaluation (a test holds them apart)."""
LOOK_BACK_S = 15
"""Arrivals of this many seconds decide which hypothesis fits."""
MIN_RATE_RPS = 1e-3


class Forecast:
    """Hypothetical traffic of one task."""

    def __init__(self, task: Task) -> None:
        self._window_s = task.window_s
        seeds = FORECAST_SEEDS
        block_tokens = task.fleet.block_tokens
        self._records = [request_records(sample(task.workload, seed), block_tokens) for seed in seeds]
        rates = np.stack([schedule(task.workload, seed).total_rps for seed in seeds])
        self._expected = np.concatenate((np.zeros((len(rates), 1)), np.cumsum(rates, axis=1)), axis=1)

    def best_hypotheses(self, arrived: Array, count: int) -> Array:
        """Indices of the hypotheses that explain the arrivals per window so far best, most likely first."""
        look_back = min(len(arrived), round(LOOK_BACK_S / self._window_s))
        ends_s = np.arange(len(arrived) - look_back, len(arrived) + 1) * self._window_s
        seconds = np.arange(self._expected.shape[1])
        at_ends = np.array([np.interp(ends_s, seconds, row) for row in self._expected])
        rate = np.maximum(np.diff(at_ends, axis=1), MIN_RATE_RPS * self._window_s)
        log_likelihood = (arrived[len(arrived) - look_back :] * np.log(rate) - rate).sum(axis=1)
        return np.argsort(-log_likelihood, kind="stable")[:count]

    def arrivals_between(self, hypothesis: int, start_ps: int, end_ps: int) -> Array:
        """Request records that a hypothesis lets arrive in [start, end)."""
        records = self._records[hypothesis]
        first, last = np.searchsorted(records["arrival_at_ps"], (start_ps, end_ps))
        return records[first:last]


_recent: deque[tuple[Task, Forecast]] = deque(maxlen=4)


def forecast_of(task: Task) -> Forecast:
    """The forecast of a task. It takes up to 50 MB, so agents that play the same task share it."""
    for known, forecast in tuple(_recent):
        if known is task:
            return forecast
    made = Forecast(task)
    _recent.append((task, made))
    return made
