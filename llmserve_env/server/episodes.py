"""Episodes as this server plays them: simulated, or on a real engine that serves one at a time."""

from __future__ import annotations

import threading
from typing import Protocol

from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.env.episode import Episode
from llmserve_env.tasks.task import RewardWeights, Task

TAKEN_OVER = "another episode has been started on the engine"


class Episodes(Protocol):
    """Makes episodes that have not been reset."""

    is_durable: bool
    """Whether a journal of the actions brings an episode back."""

    def new(self, task: Task, weights: RewardWeights | None) -> Episode:
        """An episode of this task."""

    def check(self) -> None:
        """Raise unless episodes can be made as the settings are."""

    def close(self) -> None:
        """End what is under way."""


class SimulatedEpisodes:
    """As many as wanted, each for itself."""

    is_durable = True

    def new(self, task: Task, weights: RewardWeights | None) -> Episode:
        return Episode(task, weights=weights)

    def check(self) -> None:
        """A simulator needs nothing."""

    def close(self) -> None:
        """A simulation runs only while it is stepped."""


class RealEpisodes:
    """One engine, one episode: a new one ends the one before."""

    is_durable = False

    def __init__(self) -> None:
        self._current: Episode | None = None
        self._lock = threading.Lock()

    def new(self, task: Task, weights: RewardWeights | None) -> Episode:
        episode = Episode(task, weights=weights, backend=LiveBackend(task))
        with self._lock:
            former, self._current = self._current, episode
        if former is not None:
            former.close(TAKEN_OVER)
        return episode

    def check(self) -> None:
        settings = RealSettings()
        settings.api_key()
        settings.prices()

    def close(self) -> None:
        with self._lock:
            former, self._current = self._current, None
        if former is not None:
            former.close()


def episodes_for(mode: str) -> Episodes:
    """Of LLMSERVE_MODE."""
    return RealEpisodes() if mode == "real" else SimulatedEpisodes()
