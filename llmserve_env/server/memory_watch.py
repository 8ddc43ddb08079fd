"""Keeps a server process within its memory limit: episodes give way to whatever else needs memory."""

from __future__ import annotations

from collections.abc import Callable

from llmserve_env.server.episode_memory import EpisodeMemory
from llmserve_env.server.process import give_back_memory, resident_bytes

HIGH_SHARE = 0.88
"""Share of the limit for the process with all its episodes; buffers and episodes being packed need the rest."""
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
        """Set the budget of the episodes once everything else is loaded; returns it."""
        left_bytes = int(HIGH_SHARE * self._limit_bytes) - self._resident()
        self._full_budget_bytes = max(left_bytes, MIN_EPISODE_BYTES)
        self._memory.budget_bytes = self._full_budget_bytes
        return self._full_budget_bytes

    def look(self) -> None:
        """Fit the episodes' budget to the memory in use; called about once a second, beside the event loop."""
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
