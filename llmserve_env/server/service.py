"""What the routes share: settings, sessions, counters, and threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from llmserve_env.env.episode import Episode
from llmserve_env.env.warmup import warm_up
from llmserve_env.errors import LLMServeError
from llmserve_env.server.background import in_background
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


def load_kernels(on_progress: Callable[[float], None]) -> None:
    """Make the simulator ready in this process: compile the kernels in others if need be, and load the result."""
    started_s = time.perf_counter()
    warm_up(show_progress=True, on_progress=on_progress)
    episode = Episode(BENCHMARK[0])
    episode.reset(0)
    episode.step(episode.task.default_knobs)
    log.info("simulator ready after %.1f s", time.perf_counter() - started_s)


class Service:
    """One per process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.operations = Operations()
        self.started_at = time.monotonic()
        self.num_websockets: Callable[[], int] = lambda: 0
        self.compiled_share = 0.0
        """How far compiling the simulator has got."""
        self._sessions: Sessions | None = None
        self._opening = threading.Lock()
        self._ready = asyncio.Event()
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

    @property
    def is_ready(self) -> bool:
        """Whether the simulator can serve a window at once."""
        return self._ready.is_set()

    async def until_ready(self) -> None:
        """Wait for the simulator's kernels."""
        await self._ready.wait()

    async def start(self, *background: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Open the store, begin to load the simulator, and begin what runs for as long as the server does."""
        self.started_at = time.monotonic()
        log.info("sessions: %s", self.settings.store_url.split("@")[-1])
        self.sessions.episodes.check()
        self._tasks = [asyncio.create_task(work()) for work in (self._warm, self._forget, self._tidy, *background)]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._ready.clear()
        self._slow.shutdown(wait=False, cancel_futures=True)
        self._quick.shutdown(wait=True)
        # An app may be started again after it was stopped.
        self._open_pools()
        if self._sessions is not None:
            self._sessions.episodes.close()
            self._sessions.store.close()
            self._sessions = None

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """Work that needs no simulator: it runs beside the event loop and does not wait for the kernels."""
        return await asyncio.get_running_loop().run_in_executor(self._quick, partial(call, *args))

    async def quick(self, call: Callable[..., T], *args: Any) -> T:
        """A session's work, which may wait for the store or replay a journal. It waits for the simulator first."""
        await self.until_ready()
        return await self.in_thread(call, *args)

    async def slow(self, call: Callable[..., T], *args: Any) -> T:
        """An expensive call, a few at a time, with a time limit. It waits for the simulator first."""
        await self.until_ready()
        limit_s = self.settings.expensive_timeout_s
        future = asyncio.get_running_loop().run_in_executor(self._slow, partial(call, *args))
        try:
            return await asyncio.wait_for(future, limit_s)
        except TimeoutError as error:
            raise BusyError(f"this took longer than {limit_s:g} s; the server is busy, try later") from error

    def _note_progress(self, share: float) -> None:
        self.compiled_share = share

    async def _warm(self) -> None:
        try:
            await in_background(partial(load_kernels, self._note_progress))
        except LLMServeError:
            log.exception("the simulator could not be made ready; each call will try again")
        finally:
            self._ready.set()
        # Everything loaded so far stays, so the garbage collector need not look at it again.
        gc.freeze()

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_INTERVAL_S)
            gone = await self.in_thread(self.sessions.expire, self.settings.session_idle_s)
            if gone:
                log.info("forgot %d idle sessions", gone)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_INTERVAL_S)
            await self.in_thread(self.sessions.store.tidy)
