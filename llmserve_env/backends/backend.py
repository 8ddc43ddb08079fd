"""What an episode needs of whatever serves its requests: the simulator, or a real engine."""

from __future__ import annotations

from typing import Any, Literal, Protocol

from llmserve_env.arrays import Array
from llmserve_env.tasks.task import Task

Mode = Literal["sim", "real"]


class ServingBackend(Protocol):
    """Serves windows and keeps their records, one row per episode; `Rollouts` is the simulated one."""

    mode: Mode
    task: Task
    num_episodes: int
    scoring: Array
    memory: Array
    terms: Array
    stopped: str | None
    """Why nothing more can be served before the task's last step; None while all is well."""

    @property
    def window(self) -> Array:
        """Counters of the last window (`WINDOW_DTYPE`)."""

    @property
    def metrics(self) -> Array:
        """Metrics of the last window (`METRICS_DTYPE`)."""

    def reset(self, index: int, seed: int) -> None:
        """Start episode `index` afresh."""

    def step(self, requested: Array) -> None:
        """Serve one window of every episode under these knobs, shape (episodes, knobs)."""

    def details(self) -> dict[str, Any]:
        """What this backend adds to the observation's metadata."""
