"""How much a session store may hold, per client and in total. Sessions unused for longest are deleted first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from llmserve_env.server.store import SessionStore

log = logging.getLogger("llmserve.server")
EVICTED_FRACTION = 0.02
"""Part of the allowed sessions that is deleted at once, so that not every reset has to delete one."""


class StoreLimits:
    """Makes room for a new session by deleting old ones.

    A client that has reached its share loses its own oldest sessions. If the store is full, the client with the most
    sessions loses its oldest, so that nobody can push out a client that has few.
    """

    def __init__(
        self,
        store: SessionStore,
        max_sessions: int = 20_000,
        max_per_client: int = 2_000,
        max_bytes: int = 1 << 40,
        on_evicted: Callable[[int], None] = lambda _count: None,
    ) -> None:
        self._store, self._on_evicted = store, on_evicted
        self._max_sessions, self._max_per_client, self._max_bytes = max_sessions, max_per_client, max_bytes
        self._lock = threading.Lock()
        self.num_stored = store.count()
        """As last counted; other workers may have added some since."""

    def make_room(self, address: str) -> None:
        """Called before a session is stored."""
        with self._lock:
            if self._store.count_of(address) >= self._max_per_client:
                self._evict(address, self._max_per_client)
            if self.num_stored >= self._max_sessions:
                self.recount()
            if self.num_stored >= self._max_sessions or self._store.num_bytes() >= self._max_bytes:
                self._evict(None, self._max_sessions)

    def note_created(self) -> None:
        self.num_stored += 1

    def recount(self) -> None:
        self.num_stored = self._store.count()

    def _evict(self, address: str | None, allowed: int) -> None:
        gone = self._store.evict(address, max(int(EVICTED_FRACTION * allowed), 1))
        self.num_stored -= gone
        self._on_evicted(gone)
        log.info("deleted the %d oldest sessions of %s to make room", gone, address or "the client with the most")
