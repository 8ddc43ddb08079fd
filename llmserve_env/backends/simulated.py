"""The simulator as a backend: episodes of one task in one batch of engines."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import Mode
from llmserve_env.backends.outcomes import outcomes_of
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import EngineBatch, EngineSnapshot
from llmserve_env.engine.knobs import NAMES
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import WorkloadSpec, describe, sample

REQUEST_HEADROOM = 1.1
"""Room for seeds that draw more requests than are expected; tables that need still more grow the arrays."""


@lru_cache(maxsize=64)
def expected_requests(workload: WorkloadSpec) -> int:
    """Requests to make room for; cached, because the estimate costs far more than an episode's reset."""
    return int(REQUEST_HEADROOM * describe(workload).mean_rps * workload.horizon_s) + 100


class SimulatedBackend:
    """Simulated episodes that advance together, each with its own seed; `fleet` replaces the task's fleet."""

    mode: Mode = "sim"
    stopped: str | None = None
    window_budget_usd: float | None = None
    fixed_knobs: tuple[str, ...] = ()
    window_usd = 0.0

    def __init__(self, task: Task, num_episodes: int = 1, fleet: Deployment | None = None) -> None:
        self.task = task
        self.num_episodes = num_episodes
        self.engine = EngineBatch(fleet or task.fleet, num_episodes, expected_requests(task.workload))
        self.window = self.engine.state.window
        self.metrics = self.engine.metrics
        self._knobs = np.asarray(self.engine.knobs).view(np.float64).reshape(num_episodes, len(NAMES))
        self._until_ps = np.zeros(num_episodes, np.int64)

    def reset(self, index: int, seed: int) -> None:
        """Start episode `index` with the traffic of this seed."""
        self.load(index, sample(self.task.workload, seed), seed)

    def load(self, index: int, requests: RequestTable, seed: int) -> None:
        """Start episode `index` with these requests instead of the workload's; the seed decides draft acceptance."""
        self.engine.make_room(len(requests))
        self.engine.load(index, requests, seed)
        self.metrics[index] = np.zeros((), self.metrics.dtype)
        self._until_ps[index] = 0

    def serve(self, knobs: Array) -> None:
        """Serve and measure one window of every episode."""
        self._knobs[...] = knobs
        self._until_ps += self.task.window_ps
        self.engine.advance(self._until_ps)
        self.engine.measure()

    def outcomes(self, index: int) -> RequestOutcomes:
        """What has become of the requests of an episode, from the engine's records."""
        state = self.engine.state
        arrived = slice(0, int(state.environment[index]["next_arrival"]))
        now_ps = int(state.environment[index]["now_ps"])
        return outcomes_of(self.task, state.requests[index, arrived], state.progress[index, arrived], now_ps)

    def details(self) -> dict[str, Any]:
        """A simulation adds nothing to the observation."""
        return {}

    def close(self, reason: str | None = None) -> None:
        """A simulation holds nothing that must be released."""

    def snapshot(self) -> EngineSnapshot:
        """A copy of all episodes to return to; takes about a microsecond per 10 KB."""
        return self.engine.snapshot()

    def restore(self, snapshot: EngineSnapshot) -> None:
        """Return to a snapshot; metrics are filled by the next window."""
        self.engine.restore(snapshot)
        self.resume_clock()

    def resume_clock(self) -> None:
        """Continue from the engine's clock after its state has been replaced."""
        self._until_ps[:] = self.engine.state.environment["now_ps"]
