"""How this server makes episodes: simulated, or on a real engine that serves one at a time."""

from __future__ import annotations

import threading
from typing import Protocol

from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.env.episode import Episode
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task

TAKEN_OVER = "another episode has been started on the engine"


class Episodes(Protocol):
    """A source of episodes that have not been reset yet."""

    is_durable: bool
    """Whether replaying the actions restores an episode."""

    def new(self, task: Task, weights: RewardWeights | None) -> Episode:
        """A new episode of this task."""

    def check(self) -> None:
        """Raise if the settings do not allow any episode to be made."""

    def close(self) -> None:
        """End the running episodes."""


class SimulatedEpisodes:
    """Any number of independent simulated episodes."""

    is_durable = True

    def new(self, task: Task, weights: RewardWeights | None) -> Episode:
        return Episode(task, weights=weights)

    def check(self) -> None:
        """Accept any settings: the simulator depends on none."""

    def close(self) -> None:
        """Do nothing: a simulation only runs while it is stepped."""


class RealEpisodes:
    """One episode at a time on one engine; a new one ends the one before."""

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
    """The source of episodes for a value of LLMSERVE_MODE."""
    return RealEpisodes() if mode == "real" else SimulatedEpisodes()
