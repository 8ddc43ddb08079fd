"""What the routes share: settings, sessions, counters, and a place to do slow work off the event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from llmserve_env.env.episode import Episode
from llmserve_env.server.episodes import episodes_for
from llmserve_env.server.errors import BusyError
from llmserve_env.server.operations import Operations
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.settings import Settings
from llmserve_env.server.store import open_store
from llmserve_env.tasks.catalog import BENCHMARK

log = logging.getLogger("llmserve.server")
T = TypeVar("T")
EXPIRY_INTERVAL_S = 60.0
TIDY_INTERVAL_S = 2.0
SESSION_THREADS = 8


def warm_up() -> None:
    """Load or compile the kernels before the first client waits for them."""
    started = time.perf_counter()
    episode = Episode(BENCHMARK[0])
    episode.reset(0)
    episode.step(episode.task.default_knobs)
    log.info("simulator ready after %.1f s", time.perf_counter() - started)


class Service:
    """One per process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.operations = Operations()
        self.started_at = time.monotonic()
        self.num_websockets: Callable[[], int] = lambda: 0
        self._sessions: Sessions | None = None
        self._opening = threading.Lock()
        self._open_pools()
        self._tasks: list[asyncio.Task[None]] = []

    def _open_pools(self) -> None:
        self._slow = ThreadPoolExecutor(self.settings.expensive_workers, thread_name_prefix="expensive")
        self._quick = ThreadPoolExecutor(SESSION_THREADS, thread_name_prefix="session")

    @property
    def sessions(self) -> Sessions:
        """Opened when first needed, so that importing the app touches no disk."""
        if self._sessions is None:
            with self._opening:
                if self._sessions is None:
                    episodes = episodes_for(self.settings.mode)
                    # A journal could not bring back what a real engine did, so none is kept.
                    store = open_store(self.settings.store_url if episodes.is_durable else "memory")
                    self._sessions = Sessions(
                        store, self.settings.max_live_sessions, self.settings.max_sessions, episodes
                    )
        return self._sessions

    async def start(self) -> None:
        """Open the store, warm the simulator, and begin to forget idle sessions."""
        self.started_at = time.monotonic()
        log.info("sessions: %s", self.settings.store_url.split("@")[-1])
        self.sessions.episodes.check()
        self._tasks = [asyncio.create_task(work()) for work in (self._warm, self._forget, self._tidy)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._slow.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=True)
        # An app may be started again after it was stopped.
        self._open_pools()
        if self._sessions is not None:
            self._sessions.episodes.close()
            self._sessions.store.close()
            self._sessions = None

    async def quick(self, call: Callable[..., T], *args: Any) -> T:
        """A session's work that may wait for the store or replay a journal."""
        return await asyncio.get_running_loop().run_in_executor(self._quick, partial(call, *args))

    async def slow(self, call: Callable[..., T], *args: Any) -> T:
        """An expensive call, a few at a time, with a time limit."""
        limit_s = self.settings.expensive_timeout_s
        future = asyncio.get_running_loop().run_in_executor(self._slow, partial(call, *args))
        try:
            return await asyncio.wait_for(future, limit_s)
        except TimeoutError as error:
            raise BusyError(f"this took longer than {limit_s:g} s; the server is busy, try later") from error

    async def _warm(self) -> None:
        await self.quick(warm_up)
        # What is loaded by now stays: looking through it again would be most of the garbage collector's work.
        gc.collect()
        gc.freeze()

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            gone = await self.quick(self.sessions.expire, self.settings.session_idle_s)
            if gone:
                log.info("forgot %d idle sessions", gone)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_INTERVAL_S)
            await self.quick(self.sessions.store.tidy)


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    warm_up()
