"""The step loop, for one episode or many of one task: knobs in, window metrics and reward terms out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import Mode
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import EngineBatch, EngineSnapshot
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.state import records
from llmserve_env.env.kernels import MEMORY_DTYPE, NUM_KNOBS, SCORING_DTYPE, TERMS_DTYPE, hold_knobs, score_windows
from llmserve_env.env.warmup import warm_up_once
from llmserve_env.tasks.task import KNOB_NAMES, RewardWeights, Task
from llmserve_env.units import BYTES_PER_GB
from llmserve_env.workloads import WorkloadSpec, describe, sample

REQUEST_HEADROOM = 1.5
"""Room for seeds that draw more requests than the expected peak; tables that need still more grow the arrays."""


@lru_cache(maxsize=64)
def expected_requests(workload: WorkloadSpec) -> int:
    """Requests to make room for; remembered, because the estimate costs far more than an episode's reset."""
    return int(REQUEST_HEADROOM * describe(workload).mean_rps * workload.horizon_s) + 100


def default_knobs() -> Array:
    """The knobs of a freshly started engine, in the order of the action."""
    knobs = ServingKnobs()
    return np.array([float(getattr(knobs, name)) for name in KNOB_NAMES])


def scoring_record(task: Task, weights: RewardWeights) -> Array:
    """The task's reward as numbers for the kernels."""
    record = records((1,), SCORING_DTYPE)
    row = record[0]
    row["weights"] = (weights.throughput, weights.latency, weights.violations, weights.cost, weights.memory)
    for k, name in enumerate(task.workload.class_names):
        row["class_weight"][k] = task.reward.class_weights[name]
        row["quality"][k] = task.reward.quality[name]
    for name in ("itl_comfort_ms", "itl_limit_ms", "busy_share"):
        row[name] = getattr(task.reward, name)
    row["memory_limit_gb"] = task.deployment.memory_limit_gb
    row["price_usd_per_hour"] = task.fleet.costs.price_usd_per_hour
    lightest_gb = min(tier.weight_bytes for tier in task.fleet.costs.tiers) / BYTES_PER_GB
    row["idle_gpus"] = (
        (1.0 - task.reward.busy_share) * task.fleet.num_replicas * lightest_gb / task.deployment.memory_limit_gb
    )
    row["max_gpus"] = task.fleet.max_num_replicas
    row["window_s"] = task.window_s
    row["is_active"] = [name in task.knobs.active for name in KNOB_NAMES]
    row["dwell_steps"] = [task.knobs.dwell_steps.get(name, 0) for name in KNOB_NAMES]
    return record


@dataclass(frozen=True, slots=True)
class RolloutSnapshot:
    """A point of all episodes to come back to."""

    engine: EngineSnapshot
    memory: Array


class Rollouts:
    """Episodes of one task that advance in step, each with its own seed; on another fleet than the task's if given."""

    mode: Mode = "sim"
    stopped: str | None = None

    def __init__(
        self,
        task: Task,
        num_episodes: int,
        weights: RewardWeights | None = None,
        fleet: Deployment | None = None,
    ) -> None:
        warm_up_once()
        self.task = task
        self.num_episodes = num_episodes
        self.scoring = scoring_record(task, weights or task.reward.weights)
        self._engine = EngineBatch(fleet or task.fleet, num_episodes, expected_requests(task.workload))
        self._until = np.zeros(num_episodes, np.int64)
        self.memory = records((num_episodes,), MEMORY_DTYPE)
        self.terms = records((num_episodes,), TERMS_DTYPE)

    @property
    def window(self) -> Array:
        """Counters of the last window, one record per episode."""
        return self._engine.state.window

    @property
    def metrics(self) -> Array:
        """Metrics of the last window, one record per episode."""
        return self._engine.metrics

    @property
    def engine(self) -> EngineBatch:
        return self._engine

    def reset(self, index: int, seed: int) -> None:
        """Start episode `index` afresh."""
        table = sample(self.task.workload, seed)
        self._engine.make_room(len(table))
        self._engine.load(index, table, seed)
        memory = self.memory[index]
        memory["step"], memory["cost_so_far_usd"], memory["total_reward"] = 0, 0.0, 0.0
        memory["current"], memory["turned_at"], memory["held"] = default_knobs(), -1, 0
        self._engine.metrics[index] = np.zeros((), self._engine.metrics.dtype)
        self.terms[index] = np.zeros((), self.terms.dtype)
        self._until[index] = 0

    def step(self, requested: Array) -> None:
        """Serve one window of every episode under these knobs, shape (episodes, 6)."""
        if requested.shape != (self.num_episodes, NUM_KNOBS):
            raise ValueError(f"expected knobs of shape {(self.num_episodes, NUM_KNOBS)}; got {requested.shape}")
        hold_knobs(self.scoring, self.memory, requested, self._engine.knobs)
        self._until += self.task.window_ps
        self._engine.advance(self._until)
        self._engine.measure()
        score_windows(self.scoring, self.memory, self._engine.state.window, self._engine.metrics, self.terms)

    def details(self) -> dict[str, Any]:
        """A simulation has nothing to add to the observation."""
        return {}

    def snapshot(self) -> RolloutSnapshot:
        """A copy to branch from; about a microsecond per 10 KB."""
        return RolloutSnapshot(self._engine.snapshot(), self.memory.copy())

    def restore(self, snapshot: RolloutSnapshot) -> None:
        """Back to a snapshot; metrics and terms are those of the next step."""
        self._engine.restore(snapshot.engine)
        self.memory[...] = snapshot.memory
        self._until[:] = self._engine.state.environment["now_ps"]
