"""How this server makes episodes: simulated, on a lookup table, or on a real engine that serves one at a time."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import Protocol

from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.table.backend import TableBackend
from llmserve_env.backends.table.files import SHIPPED_TABLE
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.env.episode import Episode
from llmserve_env.server.settings import Settings
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


class TableEpisodes:
    """Any number of independent episodes on one lookup table."""

    is_durable = False
    """The journal does not say which table an episode was played on."""

    def __init__(self, path: Path | None = None, memory_gb: float | None = None) -> None:
        self._path, self._memory_gb = path or SHIPPED_TABLE, memory_gb

    @cached_property
    def table(self) -> LookupTable:
        """The table; a file that cannot be read or has holes is refused with the reason."""
        return LookupTable.load(self._path, self._memory_gb)

    def new(self, task: Task, weights: RewardWeights | None) -> Episode:
        return Episode(task, weights=weights, backend=TableBackend(task, self.table, makes_room_for_cap=True))

    def check(self) -> None:
        _ = self.table

    def close(self) -> None:
        """Do nothing: a table only serves while it is stepped."""


def episodes_for(settings: Settings) -> Episodes:
    """The source of episodes for the mode that the settings choose."""
    if settings.mode == "table":
        return TableEpisodes(settings.table, settings.table_memory_gb)
    return RealEpisodes() if settings.mode == "real" else SimulatedEpisodes()
