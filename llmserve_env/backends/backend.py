"""What the step loop needs of whatever serves its requests: the simulator, a lookup table or a live engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, Protocol

from llmserve_env.arrays import Array
from llmserve_env.request_outcomes import RequestOutcomes
from llmserve_env.tasks.task import Task

Mode = Literal["sim", "real", "table"]
"""What serves an episode. Only a simulation can be replayed from its log."""


class ServingBackend(Protocol):
    """Serves the requests of one or more episodes of a task, window by window.

    `env.episode_batch.EpisodeBatch` validates and holds knobs before a window, and scores it afterwards.
    """

    mode: Mode
    task: Task
    num_episodes: int
    window: Array
    """Counters of the last window, one `WINDOW_DTYPE` record per episode. The array stays the same between windows."""
    metrics: Array
    """Metrics of the last window, one `METRICS_DTYPE` record per episode. The array stays the same between windows."""
    stopped: str | None
    """Why nothing more can be served before the task's last step; None while the backend can go on."""
    window_budget_usd: float | None
    """Dollars per window that count as full cost, where requests are billed per token; None if GPU time is billed."""

    @property
    def fixed_knobs(self) -> Collection[str]:
        """Knobs that this backend cannot change; they keep their values."""

    @property
    def window_usd(self) -> float:
        """Dollars charged for the last window; read only where `window_budget_usd` is set."""

    def reset(self, index: int, seed: int) -> None:
        """Start episode `index` from its beginning."""

    def serve(self, knobs: Array) -> None:
        """Serve one window of every episode under the knobs in force, shape (episodes, knobs)."""

    def outcomes(self, index: int) -> RequestOutcomes:
        """What has become of the requests of episode `index` by now."""

    def details(self) -> dict[str, Any]:
        """What this backend adds to the observation's metadata."""

    def close(self, reason: str | None = None) -> None:
        """Cancel what is under way and release the engine. A reason ends the episode; records stay readable."""
