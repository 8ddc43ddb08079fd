"""Keeps a server process within its memory: episodes give way to whatever else needs it."""

from __future__ import annotations

from collections.abc import Callable

from llmserve_env.server.episode_memory import EpisodeMemory
from llmserve_env.server.process import give_back_memory, resident_bytes

EPISODE_SHARE = 0.6
"""Part of the memory left after the start that episodes get; requests, buffers and fragments need the rest."""
HIGH_SHARE = 0.85
"""Part of the limit above which episodes give memory up."""
MIN_EPISODE_BYTES = 32_000_000


class MemoryWatch:
    """Sets the budget of the episodes by what the process occupies as a whole."""

    def __init__(
        self,
        memory: EpisodeMemory,
        limit_bytes: int,
        resident: Callable[[], int] = resident_bytes,
        give_back: Callable[[], None] = give_back_memory,
    ) -> None:
        self._memory, self._limit_bytes = memory, limit_bytes
        self._resident, self._give_back = resident, give_back
        self._full_budget_bytes = memory.budget_bytes

    def begin(self) -> int:
        """Note that everything is loaded; returns the budget of the episodes."""
        left_bytes = self._limit_bytes - self._resident()
        self._full_budget_bytes = max(int(EPISODE_SHARE * left_bytes), MIN_EPISODE_BYTES)
        self._memory.budget_bytes = self._full_budget_bytes
        return self._full_budget_bytes

    def look(self) -> None:
        """Called every second or so, beside the event loop."""
        high_bytes = int(HIGH_SHARE * self._limit_bytes)
        if self._resident() > high_bytes:
            self._give_back()
        spare_bytes = high_bytes - self._resident()
        memory = self._memory
        if spare_bytes < 0:
            memory.fit(max(memory.num_bytes + spare_bytes, MIN_EPISODE_BYTES))
            self._give_back()
        elif memory.budget_bytes < self._full_budget_bytes:
            memory.fit(min(memory.budget_bytes + spare_bytes // 2, self._full_budget_bytes))
