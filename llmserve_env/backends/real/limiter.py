"""A concurrency limit that can be changed while requests wait for it, in order of arrival or of urgency."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Waiter:
    priority: int
    order: int
    turn: asyncio.Future[None]


class Limiter:
    """Admits `limit` requests at a time. After the limit is lowered, none is admitted until enough have left."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._by_priority = False
        self._waiting: list[_Waiter] = []
        self._num_running = 0
        self._num_seen = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that requests wait in; everything but `configure` is called inside it."""

    @property
    def num_running(self) -> int:
        return self._num_running

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def configure(self, limit: int, by_priority: bool) -> None:
        """Change the limit and the order, also for requests that already wait. May be called from any thread."""
        self._limit, self._by_priority = limit, by_priority
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._admit)

    @asynccontextmanager
    async def turn(self, priority: int) -> AsyncIterator[None]:
        """Wait for a place, and hold it for the block."""
        self._num_seen += 1
        self._loop = asyncio.get_running_loop()
        waiter = _Waiter(priority, self._num_seen, self._loop.create_future())
        self._waiting.append(waiter)
        self._admit()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:
                self._leave()
            raise
        try:
            yield
        finally:
            self._leave()

    def _leave(self) -> None:
        self._num_running -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._num_running < self._limit:
            best = min(self._waiting, key=lambda w: (w.priority if self._by_priority else 0, w.order))
            self._waiting.remove(best)
            self._num_running += 1
            # A request that was cancelled at this moment returns its place itself.
            if not best.turn.cancelled():
                best.turn.set_result(None)
