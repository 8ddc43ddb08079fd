"""Threads for work that would block the event loop. Clients take turns, so that one with much to do delays itself."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from llmserve_env.server.errors import TooManyWaitingError

T = TypeVar("T")


class Lanes:
    """A pool of threads with a queue per client; used from one event loop."""

    def __init__(self, threads: int, per_client: int, max_waiting: int, name: str) -> None:
        self._free, self._per_client, self._max_waiting = threads, per_client, max_waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._running: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def run(self, client: str, call: Callable[..., T], *args: Any) -> T:
        """The result of a call in a thread, when this client has its turn."""
        await self._turn(client)
        future = asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args))
        # The turn ends with the work, which goes on even if nobody waits for it any longer.
        future.add_done_callback(lambda _done: self._end_turn(client))
        return await asyncio.shield(future)

    def shut_down(self, wait: bool) -> None:
        """End the threads; work that has not begun is cancelled unless it is waited for."""
        self._pool.shutdown(wait=wait, cancel_futures=not wait)

    async def _turn(self, client: str) -> None:
        if self._free and self._running[client] < self._per_client:
            self._begin(client)
            return
        queue = self._waiting.setdefault(client, deque())
        if len(queue) >= self._max_waiting:
            raise TooManyWaitingError(
                f"{len(queue)} of your calls are waiting already; wait for their answers before you send more"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._end_turn(client)
            elif turn in queue:
                queue.remove(turn)
            raise

    def _begin(self, client: str) -> None:
        self._free -= 1
        self._running[client] += 1

    def _end_turn(self, client: str) -> None:
        self._free += 1
        self._running[client] -= 1
        if not self._running[client]:
            del self._running[client]
        self._start_next()

    def _start_next(self) -> None:
        for client in list(self._waiting):
            queue = self._waiting[client]
            while queue and queue[0].cancelled():
                queue.popleft()
            if not queue:
                del self._waiting[client]
            elif self._running[client] < self._per_client:
                # The others come first the next time.
                self._waiting.move_to_end(client)
                self._begin(client)
                queue.popleft().set_result(None)
                return
