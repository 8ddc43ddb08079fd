"""The step loop, for one episode or many of one task: hold knobs, serve a window, score it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import ServingBackend
from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.engine import EngineBatch, EngineSnapshot
from llmserve_env.engine.knobs import NAMES
from llmserve_env.engine.layout import COUNTERS_DTYPE
from llmserve_env.engine.state import records
from llmserve_env.env.features import encode_features
from llmserve_env.env.kernels import (
    CONTROL_DTYPE,
    NUM_KNOBS,
    REWARD_TERMS,
    SCORING_DTYPE,
    TERMS_DTYPE,
    hold_knobs,
    score_windows,
)
from llmserve_env.env.knob_rules import fill_knob_rules, start_control
from llmserve_env.env.warmup import warm_up_once
from llmserve_env.errors import EpisodeStateError
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task
from llmserve_env.units import BYTES_PER_GB
from llmserve_env.workloads import TrafficSchedule, schedule

MEMORY_KNOB = "kv_budget_fraction"


def scoring_record(task: Task, weights: RewardWeights, window_budget_usd: float | None = None) -> Array:
    """The task's reward and knob rules as numbers for the kernels; a budget replaces the price of GPU time."""
    record = records((1,), SCORING_DTYPE)
    row = record[0]
    for term in REWARD_TERMS:
        row["weights"][term] = getattr(weights, term)
    for k, name in enumerate(task.workload.class_names):
        row["class_weight"][k] = task.reward.class_weights[name]
        row["quality"][k][list(task.fleet.costs.tiers)] = task.reward.quality[name]
    for name in ("itl_comfort_ms", "itl_limit_ms", "busy_share"):
        row[name] = getattr(task.reward, name)
    row["memory_limit_gb"] = task.deployment.memory_limit_gb
    row["price_usd_per_hour"] = task.fleet.costs.price_usd_per_hour
    row["bills_gpu_time"] = task.reward.bill == "gpu_time"
    row["counts_reserved_memory"] = task.reward.memory == "reserved"
    row["idle_gpus"] = _idle_gpus(task)
    row["max_gpus"] = task.fleet.max_num_replicas
    row["window_s"] = task.window_s
    row["window_budget_usd"] = window_budget_usd or 0.0
    fill_knob_rules(record, task)
    return record


def _idle_gpus(task: Task) -> float:
    """The smallest number of GPUs that a window can be billed for."""
    if task.reward.bill == "gpu_time":
        return task.fleet.num_replicas
    lightest_gb = min(tier.weight_bytes for tier in task.fleet.costs.tiers.values()) / BYTES_PER_GB
    return (1.0 - task.reward.busy_share) * task.fleet.num_replicas * lightest_gb / task.deployment.memory_limit_gb


@dataclass(frozen=True, slots=True)
class BatchSnapshot:
    """The state of all episodes of a batch at one point in time."""

    engine: EngineSnapshot
    control: Array


class EpisodeBatch:
    """Episodes of one task that advance together. Every episode in this package takes its steps here."""

    def __init__(self, backend: ServingBackend, weights: RewardWeights | None = None) -> None:
        warm_up_once()
        self.backend = backend
        self.task = backend.task
        self.num_episodes = backend.num_episodes
        self.window, self.metrics = backend.window, backend.metrics
        self.counters: Array = np.ndarray(self.window.shape, COUNTERS_DTYPE, self.window, strides=self.window.strides)
        """The windows without their histograms."""
        self.scoring = scoring_record(self.task, weights or self.task.reward.weights, backend.window_budget_usd)
        self.control = records((self.num_episodes,), CONTROL_DTYPE)
        self.terms = records((self.num_episodes,), TERMS_DTYPE)
        self.knobs: Array = np.asarray(self.control["current"])
        """Knobs in force, shape (episodes, knobs)."""
        self._steps: Array = self.control["step"]
        self._is_active = self.scoring["is_active"][0].copy()
        self._seeds: dict[int, int] = {}
        self._schedules: dict[int, TrafficSchedule] = {}
        self._phase_table: Array | None = None

    @classmethod
    def simulated(cls, task: Task, num_episodes: int, weights: RewardWeights | None = None) -> Self:
        """Episodes in the simulator."""
        return cls(SimulatedBackend(task, num_episodes), weights)

    def reset(self, index: int, seed: int) -> None:
        """Start episode `index` from its beginning."""
        self.backend.reset(index, seed)
        self.start(index, seed)

    def start(self, index: int, seed: int) -> None:
        """Put the control record of an episode at its beginning; its backend must be there already."""
        start_control(self.control, self.scoring, index)
        self.terms[index] = np.zeros((), self.terms.dtype)
        self._seeds[index] = seed
        self._schedules.pop(index, None)
        self._phase_table = None

    def step(self, requested: Array) -> None:
        """Serve one window of every episode under these knobs, shape (episodes, knobs)."""
        if requested.shape != (self.num_episodes, NUM_KNOBS):
            raise ValueError(f"expected knobs of shape {(self.num_episodes, NUM_KNOBS)}; got {requested.shape}")
        backend = self.backend
        if backend.fixed_knobs:
            fixed = [name in backend.fixed_knobs for name in NAMES]
            self.scoring["is_active"] = np.where(fixed, 0, self._is_active)
            if MEMORY_KNOB in backend.fixed_knobs:
                # Memory that no action can free is not charged.
                self.scoring["weights"]["memory"] = 0.0
        hold_knobs(self.scoring, self.control, requested)
        backend.serve(self.knobs)
        if backend.window_budget_usd is not None:
            self.control["window_usd"] = backend.window_usd
        score_windows(self.scoring, self.control, self.window, self.metrics, self.terms)

    def features(self) -> Array:
        """The observation vector of every episode, shape (episodes, features)."""
        out = np.empty((self.num_episodes, self.scoring["num_features"].item()), np.float32)
        encode_features(self.scoring, self.control, self.window, self.metrics, self.task.steps, out)
        return out

    def can_change(self) -> Array:
        """Which knobs would follow a change requested now: the active ones that need not dwell, (episodes, knobs)."""
        control, dwell_steps = self.control, self.scoring["dwell_steps"][0]
        changed_at = control["changed_at_step"]
        is_dwelling = (changed_at >= 0) & (control["step"][:, None] - changed_at < dwell_steps)
        can: Array = (self.scoring["is_active"][0] != 0) & ~is_dwelling
        return can

    def held_knobs(self, index: int) -> tuple[str, ...]:
        """Knobs of an episode whose requested change did not apply in the last step."""
        held = self.control["held"][index].tolist()
        return tuple(name for name, is_held in zip(NAMES, held, strict=True) if is_held) if any(held) else ()

    def schedule(self, index: int) -> TrafficSchedule:
        """Expected traffic of an episode's seed, for phases, plots and forecasting agents."""
        if index not in self._schedules:
            if index not in self._seeds:
                raise EpisodeStateError("reset the episode before asking for its traffic")
            self._schedules[index] = schedule(self.task.workload, self._seeds[index])
        return self._schedules[index]

    def phases(self) -> Array:
        """Phase of the traffic of every episode, as `phase` returns it."""
        if self._phase_table is None:
            self._phase_table = np.stack([self.schedule(index).phase for index in range(self.num_episodes)])
        second = np.maximum((self._steps * self.task.window_s).astype(np.int64) - 1, 0)
        found: Array = self._phase_table[
            np.arange(self.num_episodes), np.minimum(second, self._phase_table.shape[1] - 1)
        ]
        return found

    def phase(self, index: int) -> str:
        """Phase of the traffic in the window just served (of the first window before any)."""
        phases = self.schedule(index).phase
        second = max(int(self._steps.item(index) * self.task.window_s) - 1, 0)
        return str(phases[min(second, len(phases) - 1)])

    @property
    def simulation(self) -> SimulatedBackend:
        """The simulator behind these episodes, for callers that copy or inspect its state."""
        if not isinstance(self.backend, SimulatedBackend):
            raise EpisodeStateError(f"episodes in {self.backend.mode} mode have no simulator to copy or inspect")
        return self.backend

    @property
    def engine(self) -> EngineBatch:
        return self.simulation.engine

    def snapshot(self) -> BatchSnapshot:
        """A copy of simulated episodes to branch from."""
        return BatchSnapshot(self.simulation.snapshot(), self.control.copy())

    def restore(self, snapshot: BatchSnapshot) -> None:
        """Return to a snapshot; metrics and terms are filled by the next step."""
        self.simulation.restore(snapshot.engine)
        self.control[...] = snapshot.control
