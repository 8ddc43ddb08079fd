"""What the routes share: settings, sessions, counters, and threads for work that would block the event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from llmserve_env.env.episode import Episode
from llmserve_env.env.warmup import warm_up
from llmserve_env.errors import LLMServeError
from llmserve_env.server.background import in_background
from llmserve_env.server.baseline_jobs import CHECK_INTERVAL_S, BaselineJobs
from llmserve_env.server.clients import Client
from llmserve_env.server.episode_memory import EpisodeMemory
from llmserve_env.server.episodes import episodes_for
from llmserve_env.server.errors import BusyError
from llmserve_env.server.housekeeping import repeat
from llmserve_env.server.lanes import Lanes
from llmserve_env.server.limits import Rates
from llmserve_env.server.memory_watch import MemoryWatch
from llmserve_env.server.operations import Operations
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.settings import Settings
from llmserve_env.server.store import open_store
from llmserve_env.server.store_limits import StoreLimits
from llmserve_env.tasks.catalog import BENCHMARK

log = logging.getLogger("llmserve.server")
T = TypeVar("T")
TICK_INTERVAL_S = 60.0
TIDY_INTERVAL_S = 2.0
WATCH_INTERVAL_S = 1.0
SESSION_THREADS = 8
SESSION_THREADS_PER_CLIENT = 4
MAX_WAITING_PER_CLIENT = 500
OURSELVES = "server"
"""The lane of the server's own work."""
STORE_RESERVE = 0.9
"""Part of LLMSERVE_STORE_MB above which sessions are deleted; the rest is for the write-ahead log."""
BYTES_PER_MB = 1_000_000


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
        self.rates = Rates(settings)
        self.memory = EpisodeMemory(settings.memory_mb * BYTES_PER_MB)
        self._memory_watch = MemoryWatch(self.memory, settings.memory_mb * BYTES_PER_MB)
        self.baseline_jobs = BaselineJobs(settings)
        self.started_at = time.monotonic()
        self.num_websockets: Callable[[], int] = lambda: 0
        self.compiled_share = 0.0
        """Share of the simulator's kernels that are compiled."""
        self._sessions: Sessions | None = None
        self._opening = threading.Lock()
        self._ready = asyncio.Event()
        self._open_pools()
        self._tasks: list[asyncio.Task[None]] = []

    def _open_pools(self) -> None:
        workers = self.settings.expensive_workers
        self._slow = Lanes(workers, max(workers - 1, 1), MAX_WAITING_PER_CLIENT, "expensive")
        self._quick = Lanes(SESSION_THREADS, SESSION_THREADS_PER_CLIENT, MAX_WAITING_PER_CLIENT, "session")

    @property
    def sessions(self) -> Sessions:
        """Opened when first needed, so that importing the app touches no disk."""
        if self._sessions is None:
            with self._opening:
                if self._sessions is None:
                    self._sessions = self._open_sessions()
        return self._sessions

    def _open_sessions(self) -> Sessions:
        settings, episodes = self.settings, episodes_for(self.settings)
        max_bytes = settings.store_mb * BYTES_PER_MB
        # A journal brings back simulated episodes only, so none is kept of others.
        store = open_store(settings.store_url if episodes.is_durable else "memory", max_bytes)
        limits = StoreLimits(
            store,
            settings.max_sessions,
            settings.max_sessions_per_client,
            int(STORE_RESERVE * max_bytes),
            self.operations.evicted.inc,
        )
        return Sessions(store, limits, episodes, self.memory, settings.max_live_sessions)

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
        repeated = (
            repeat("the sweep for idle sessions", TICK_INTERVAL_S, self._forget, self.note_store_error),
            repeat("the store's housekeeping", TIDY_INTERVAL_S, self._tidy, self.note_store_error),
            repeat("the watch over memory", WATCH_INTERVAL_S, self._watch_memory, self.note_store_error),
            repeat("the watch over jobs", CHECK_INTERVAL_S, self._look_after_jobs, self.note_store_error),
        )
        self._tasks = [
            asyncio.create_task(work) for work in (self._warm(), *repeated, *(call() for call in background))
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.baseline_jobs.stop()
        self._ready.clear()
        self._slow.shut_down(wait=False)
        self._quick.shut_down(wait=True)
        # An app may be started again after it was stopped.
        self._open_pools()
        if self._sessions is not None:
            self._sessions.episodes.close()
            self._sessions.store.close()
            self._sessions = None

    def note_store_error(self, where: str) -> None:
        """Count a failure of the store for /metrics."""
        self.operations.store_errors.labels(where).inc()

    async def in_thread(self, client: Client | None, call: Callable[..., T], *args: Any) -> T:
        """Run work that needs no simulator beside the event loop; it does not wait for the kernels."""
        return await self._quick.run(client.address if client else OURSELVES, call, *args)

    async def quick(self, client: Client, call: Callable[..., T], *args: Any) -> T:
        """Run a session's work, which may wait for the store or replay a journal, once the simulator is ready."""
        await self.until_ready()
        return await self.in_thread(client, call, *args)

    async def slow(self, client: Client, call: Callable[..., T], *args: Any) -> T:
        """Run an expensive call, a few at a time and with a time limit, once the simulator is ready."""
        await self.until_ready()
        limit_s = self.settings.expensive_timeout_s
        try:
            return await asyncio.wait_for(self._slow.run(client.address, call, *args), limit_s)
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
            log.info("%.0f MB for episodes", self._memory_watch.begin() / BYTES_PER_MB)
            self._ready.set()
        # Everything loaded so far stays, so the garbage collector need not look at it again.
        gc.freeze()

    async def _forget(self) -> None:
        """Advance the store's clock by the minute that has passed, and delete what has been idle for too long."""
        await self.in_thread(None, self.sessions.store.tick)
        gone = await self.in_thread(
            None, self.sessions.expire, math.ceil(self.settings.session_idle_s / TICK_INTERVAL_S)
        )
        if gone:
            log.info("forgot %d idle sessions", gone)

    async def _watch_memory(self) -> None:
        if self.is_ready:
            await self.in_thread(None, self._memory_watch.look)

    async def _look_after_jobs(self) -> None:
        self.baseline_jobs.look_after()

    async def _tidy(self) -> None:
        await self.in_thread(None, self.sessions.store.tidy)
