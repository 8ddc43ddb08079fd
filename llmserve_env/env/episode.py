"""One episode: reset by a seed, step by knobs, and a log that is enough to do it all again."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import Mode, ServingBackend
from llmserve_env.engine.knobs import NAMES
from llmserve_env.engine.layout import COUNTERS_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.kernels import TERMS_DTYPE
from llmserve_env.env.rollouts import Rollouts
from llmserve_env.errors import EpisodeStateError, InvalidLogError, VersionMismatchError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import RewardWeights, Task
from llmserve_env.version import ENVIRONMENT_VERSION
from llmserve_env.workloads import TrafficSchedule, schedule

MAX_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True)
class EpisodeLog:
    """What happened, as causes: replaying them gives every figure again, bit by bit."""

    task_id: str
    task_version: int
    environment_version: str
    seed: int
    actions: tuple[tuple[float, ...], ...]
    """Requested values of the task's `action_knobs`, of each step."""
    rewards: tuple[float, ...] = ()
    """Rewards as they were paid; a replay that pays others refuses the log."""
    mode: Mode = "sim"
    """What served the requests; only a simulation can be lived through again."""


@dataclass(slots=True)
class Trajectory:
    """Per-step records of an episode."""

    terms: Array
    metrics: Array
    window: Array
    knobs: Array
    """Knobs in force; a requested change that was held is not among them."""
    requested: Array
    num_steps: int = 0
    totals: dict[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls, steps: int) -> Trajectory:
        """Room for an episode."""
        width = len(NAMES)
        return cls(
            np.zeros(steps, TERMS_DTYPE),
            np.zeros(steps, METRICS_DTYPE),
            np.zeros(steps, COUNTERS_DTYPE),
            np.zeros((steps, width)),
            np.zeros((steps, width)),
        )

    def record(self, backend: ServingBackend, index: int, requested: Array) -> None:
        """Add the step that episode `index` of this backend has just made."""
        t, window = self.num_steps, backend.window
        self.terms[t] = backend.terms[index]
        self.metrics[t] = backend.metrics[index]
        self.window[t] = np.ndarray(window.shape, COUNTERS_DTYPE, window, strides=window.strides)[index]
        self.knobs[t] = backend.memory["current"][index]
        self.requested[t] = requested
        self.num_steps = t + 1


class Episode:
    """An episode of one task, in process. The server, the Gymnasium environment, agents and graders all drive this."""

    def __init__(
        self,
        task: Task | str | int,
        *,
        weights: RewardWeights | None = None,
        backend: ServingBackend | None = None,
    ) -> None:
        self.task = task if isinstance(task, Task) else load_task(task)
        self.rollouts: ServingBackend = backend or Rollouts(self.task, 1, weights)
        self.trajectory = Trajectory.empty(self.task.steps)
        self.seed: int | None = None
        self._schedule: TrafficSchedule | None = None
        self._is_limited = bool(self.task.limited_knobs)

    def reset(self, seed: int) -> None:
        """Start afresh; the same seed brings the same traffic whatever is done to it."""
        if not 0 <= seed <= MAX_SEED:
            raise EpisodeStateError(f"seed must be a whole number from 0 to {MAX_SEED}; got {seed!r}")
        self.seed = seed
        self.rollouts.reset(0, seed)
        self.trajectory = Trajectory.empty(self.task.steps)
        self._schedule = None

    @property
    def step_count(self) -> int:
        return self.trajectory.num_steps

    @property
    def is_done(self) -> bool:
        return self.step_count >= self.task.steps or self.rollouts.stopped is not None

    @property
    def schedule(self) -> TrafficSchedule:
        """Expected traffic of this seed, for phases, plots and forecasting agents."""
        if self._schedule is None:
            if self.seed is None:
                raise EpisodeStateError("reset the episode before asking for its traffic")
            self._schedule = schedule(self.task.workload, self.seed)
        return self._schedule

    @property
    def phase(self) -> str:
        """Phase of the traffic in the window just served (of the first window before any)."""
        second = max(int(self.step_count * self.task.window_s) - 1, 0)
        return str(self.schedule.phase[min(second, len(self.schedule.phase) - 1)])

    def step(self, knobs: Array) -> None:
        """Serve one window under these knobs, a row of the knob matrix."""
        if self.seed is None:
            raise EpisodeStateError("reset the episode before its first step")
        if self.is_done:
            reason = f": {self.rollouts.stopped}" if self.rollouts.stopped else ""
            raise EpisodeStateError(f"the episode ended after {self.step_count} steps{reason}; reset to start another")
        if self._is_limited:
            self.task.check_limits(knobs)
        self.rollouts.step(knobs[None])
        self.trajectory.record(self.rollouts, 0, knobs)

    @property
    def reward(self) -> float:
        """Reward of the last step."""
        return float(self.rollouts.terms[0]["reward"])

    @property
    def held_knobs(self) -> tuple[str, ...]:
        """Knobs whose requested change did not apply in the last step."""
        held = self.rollouts.memory["held"][0].tolist()
        return tuple(name for name, is_held in zip(NAMES, held, strict=True) if is_held) if any(held) else ()

    def log(self) -> EpisodeLog:
        """The causes so far."""
        n = self.step_count
        return EpisodeLog(
            task_id=self.task.id,
            task_version=self.task.version,
            environment_version=ENVIRONMENT_VERSION,
            seed=int(self.seed or 0),
            actions=tuple(map(tuple, self.task.action_from_knobs(self.trajectory.requested[:n]).tolist())),
            rewards=tuple(self.trajectory.terms["reward"][:n].tolist()),
            mode=self.rollouts.mode,
        )


def replay(log: EpisodeLog, task: Task | None = None) -> Episode:
    """Live through a log again; one of another version is refused, because its figures would not be the same."""
    task = task or load_task(log.task_id)
    if log.mode != "sim":
        raise InvalidLogError(
            f"the log was played in {log.mode} mode: what a real engine did cannot be replayed; "
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
