"""Episodes on a real engine."""

from __future__ import annotations

from llmserve_env.backends.real.backend import RealBackend
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.env.episode import Episode
from llmserve_env.tasks.task import RewardWeights, Task


class RealEpisode(Episode):
    """As an `Episode`, in real time on a real engine; its log cannot be replayed, and it must be closed."""

    def __init__(
        self, task: Task, settings: RealSettings | None = None, *, weights: RewardWeights | None = None
    ) -> None:
        self.backend = RealBackend(task, settings or RealSettings(), weights)
        super().__init__(task, weights=weights, backend=self.backend)

    def close(self) -> None:
        """Cancel what is under way; a finished episode has done so itself."""
        self.backend.close()

    def __enter__(self) -> RealEpisode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
