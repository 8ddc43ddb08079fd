"""One episode: reset by a seed, step by knobs, and a log from which it can be replayed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import Mode, ServingBackend
from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.knobs import NAMES
from llmserve_env.engine.layout import COUNTERS_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.kernels import TERMS_DTYPE
from llmserve_env.errors import EpisodeStateError, InvalidLogError, VersionMismatchError
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.tasks.catalog import load_task, load_version
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION
from llmserve_env.workloads import TrafficSchedule

MAX_SEED = 2**32 - 1
COUNTS = ("arrived", "finished", "rejected", "abandoned", "preemptions", "ooms", "reloads", "output_tokens")
"""Counters of a window that observations show and totals add up."""


@dataclass(frozen=True, slots=True)
class ActionLog:
    """The actions of an episode: replaying them reproduces every figure bit for bit."""

    task_id: str
    task_version: int
    environment_version: str
    seed: int
    actions: tuple[tuple[float, ...], ...]
    """Requested values of the task's `action_knobs`, a tuple per step."""
    rewards: tuple[float, ...] = ()
    """Rewards as they were paid; grading refuses the log if a replay pays different ones."""
    mode: Mode = "sim"
    """What served the requests; only a simulation can be replayed."""


@dataclass(slots=True)
class Trajectory:
    """Per-step records of an episode."""

    terms: Array
    metrics: Array
    window: Array
    knobs: Array
    """Knobs in force: those requested, except where a knob was held."""
    requested: Array
    num_steps: int = 0

    @classmethod
    def empty(cls, steps: int) -> Trajectory:
        """A record with room for this many steps."""
        width = len(NAMES)
        return cls(
            np.zeros(steps, TERMS_DTYPE),
            np.zeros(steps, METRICS_DTYPE),
            np.zeros(steps, COUNTERS_DTYPE),
            np.zeros((steps, width)),
            np.zeros((steps, width)),
        )

    def record(self, batch: EpisodeBatch, index: int, requested: Array) -> None:
        """Add the step that episode `index` of the batch has just taken."""
        t = self.num_steps
        self.terms[t] = batch.terms[index]
        self.metrics[t] = batch.metrics[index]
        self.window[t] = batch.counters[index]
        self.knobs[t] = batch.knobs[index]
        self.requested[t] = requested
        self.num_steps = t + 1

    def totals(self) -> dict[str, float]:
        """Counts and cost, summed over the steps played."""
        n = self.num_steps
        counted = {name: float(np.sum(self.window[name][:n])) for name in COUNTS}
        # `cumsum` adds in the order of the steps, so the cost equals the running total of a live episode exactly.
        cost = float(np.cumsum(self.terms["cost_usd"][:n])[-1]) if n else 0.0
        return {**counted, "cost_usd": cost}


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """The record of an episode, finished or not: plain data that graders and reports read and processes exchange."""

    task: Task
    seed: int
    trajectory: Trajectory
    requests: RequestOutcomes
    """What became of the requests that have arrived."""
    mode: Mode = "sim"
    fixed_knobs: frozenset[str] = frozenset()
    """Knobs that the backend could not change; components that only they move are not graded."""

    @property
    def step_count(self) -> int:
        return self.trajectory.num_steps

    def totals(self) -> dict[str, float]:
        """Counts and cost, summed over the steps played."""
        return self.trajectory.totals()

    def log(self) -> ActionLog:
        """The log from which the episode can be replayed."""
        n = self.step_count
        return ActionLog(
            task_id=self.task.id,
            task_version=self.task.version,
            environment_version=ENVIRONMENT_VERSION,
            seed=self.seed,
            actions=tuple(map(tuple, self.task.action_from_knobs(self.trajectory.requested[:n]).tolist())),
            rewards=tuple(self.trajectory.terms["reward"][:n].tolist()),
            mode=self.mode,
        )


class Episode:
    """One episode of a task, in process: an `EpisodeBatch` of one, with its trajectory and its log.

    An episode on a live engine must be closed; used as a context manager, it closes itself.
    """

    def __init__(
        self,
        task: Task | str | int,
        *,
        weights: RewardWeights | None = None,
        backend: ServingBackend | None = None,
    ) -> None:
        self.task = task if isinstance(task, Task) else load_task(task)
        self.batch = EpisodeBatch(backend or SimulatedBackend(self.task), weights)
        self.trajectory = Trajectory.empty(self.task.steps)
        self.seed: int | None = None
        self._is_limited = bool(self.task.limited_knobs)

    def reset(self, seed: int) -> None:
        """Start from the beginning; a seed always brings the same traffic, whatever the actions are."""
        if not 0 <= seed <= MAX_SEED:
            raise EpisodeStateError(f"seed must be a whole number from 0 to {MAX_SEED}; got {seed!r}")
        self.seed = seed
        self.batch.reset(0, seed)
        self.trajectory = Trajectory.empty(self.task.steps)

    @property
    def mode(self) -> Mode:
        return self.batch.backend.mode

    @property
    def num_bytes(self) -> int:
        """Memory that a simulated episode occupies."""
        kept = self.trajectory
        records = (kept.terms, kept.metrics, kept.window, kept.knobs, kept.requested)
        return self.batch.engine.num_bytes + sum(array.nbytes for array in records)

    @property
    def stopped(self) -> str | None:
        """Why the backend ended the episode before its last step; None if it did not."""
        return self.batch.backend.stopped

    @property
    def step_count(self) -> int:
        return self.trajectory.num_steps

    @property
    def is_done(self) -> bool:
        return self.step_count >= self.task.steps or self.batch.backend.stopped is not None

    @property
    def schedule(self) -> TrafficSchedule:
        """Expected traffic of this seed, for phases, plots and forecasting agents."""
        return self.batch.schedule(0)

    @property
    def phase(self) -> str:
        """Phase of the traffic in the window just served (of the first window before any)."""
        return self.batch.phase(0)

    def requested_before(self, step: int) -> Array:
        """The knobs last asked for before step number `step` (from 0); those of a fresh deployment before the first."""
        row: Array = self.trajectory.requested[step - 1] if step else self.task.default_knobs
        return row

    def step(self, knobs: Array) -> None:
        """Serve one window under these knobs, a row of the knob matrix."""
        if self.seed is None:
            raise EpisodeStateError("reset the episode before its first step")
        if self.is_done:
            reason = f": {self.stopped}" if self.stopped else ""
            raise EpisodeStateError(f"the episode ended after {self.step_count} steps{reason}; reset to start another")
        if self._is_limited:
            self.task.check_limits(knobs)
        self.batch.step(knobs[None])
        self.trajectory.record(self.batch, 0, knobs)

    @property
    def reward(self) -> float:
        """Reward of the last step."""
        return float(self.batch.terms[0]["reward"])

    @property
    def held_knobs(self) -> tuple[str, ...]:
        """Knobs whose requested change did not apply in the last step."""
        return self.batch.held_knobs(0)

    def played(self) -> PlayedEpisode:
        """The record so far, which graders and reports read; it grows with further steps."""
        if self.seed is None:
            raise EpisodeStateError("reset the episode before asking for its record")
        backend = self.batch.backend
        return PlayedEpisode(
            self.task, self.seed, self.trajectory, backend.outcomes(0), self.mode, frozenset(backend.fixed_knobs)
        )

    def log(self) -> ActionLog:
        """The log from which the steps so far can be replayed."""
        return self.played().log()

    def close(self, reason: str | None = None) -> None:
        """Cancel what is under way on a live engine; if a reason is given, the episode ends with it."""
        self.batch.backend.close(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replay(log: ActionLog, task: Task | None = None) -> Episode:
    """Play a log again. A log of another version is refused, because its figures would differ."""
    task = task or load_version(log.task_id, log.task_version)
    if log.mode != "sim":
        raise InvalidLogError(
            f"the log was played in {log.mode} mode, and only simulated episodes can be replayed; "
            "grade the episode where it was played"
        )
    if (task.version, ENVIRONMENT_VERSION) != (log.task_version, log.environment_version):
        raise VersionMismatchError(
            f"the log is of {log.task_id} version {log.task_version} on environment {log.environment_version}; "
            f"here are version {task.version} and {ENVIRONMENT_VERSION}: play it again with this version"
        )
    episode = Episode(task)
    episode.reset(log.seed)
    for action in log.actions:
        episode.step(task.knobs_from_action(action))
    return episode
