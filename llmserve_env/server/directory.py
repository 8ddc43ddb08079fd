"""The sessions in memory: by key, by the id that clients use, and by the client that reset them last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from llmserve_env.server.clients import Client
from llmserve_env.server.store import SessionRecord

Name = tuple[str, str, str]


class Recorded(Protocol):
    """Anything with a record."""

    record: SessionRecord


S = TypeVar("S", bound=Recorded)


def _names_of(record: SessionRecord) -> list[Name]:
    """The names under which clients find the session: a secret id works for all, any other id only for its owner."""
    if record.is_secret:
        return [("secret", "", record.session_id)]
    by_address = [("address", record.own_address, record.session_id)] if record.own_address else []
    return [("owner", record.owner, record.session_id), *by_address]


class Directory(Generic[S]):
    """Holds a bounded number of sessions; the one used least recently leaves first, and is then in the store only."""

    def __init__(self, max_sessions: int, on_leave: Callable[[S], None]) -> None:
        self._max_sessions, self._on_leave = max_sessions, on_leave
        self._sessions: OrderedDict[int, S] = OrderedDict()
        self._by_name: dict[Name, int] = {}
        self._latest: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._sessions)

    def by_key(self, key: int) -> S | None:
        with self._lock:
            return self._get(key)

    def find(self, session_id: str, client: Client) -> S | None:
        """The session that this client means by an id."""
        with self._lock:
            session = self._get(self._by_name.get(("secret", "", session_id)))
            if session is not None:
                return session
            if client.owner:
                return self._get(self._by_name.get(("owner", client.owner, session_id)))
            if client.is_shared:
                return None
            return self._get(self._by_name.get(("address", client.address, session_id)))

    def latest(self, client: Client) -> S | None:
        """The session that this client reset last, if it is the last one the directory knows of."""
        with self._lock:
            if client.owner:
                return self._get(self._latest.get(("owner", client.owner)))
            return None if client.is_shared else self._get(self._latest.get(("address", client.address)))

    def remember(self, session: S, is_latest: bool = False) -> S:
        """Add a session, in the place of an older one of the same name; returns the one that is there."""
        record, left = session.record, []
        with self._lock:
            present = self._sessions.get(record.key)
            if present is not None:
                return present
            for name in _names_of(record):
                former = self._sessions.get(self._by_name.get(name, 0))
                if former is not None and record.replaces(former.record):
                    left.append(self._remove(former))
                self._by_name[name] = record.key
            self._sessions[record.key] = session
            if is_latest:
                self._note_latest(record)
            while len(self._sessions) > self._max_sessions:
                left.append(self._remove(next(iter(self._sessions.values()))))
        for gone in left:
            self._on_leave(gone)
        return session

    def settle(self, session: S) -> None:
        """Stop finding the session by its client's address alone, because its token has come back."""
        with self._lock:
            where = ("address", session.record.address)
            if self._latest.get(where) == session.record.key:
                del self._latest[where]

    def drop(self, session: S) -> None:
        """Forget a session that is gone from the store."""
        with self._lock:
            is_there = session.record.key in self._sessions
            if is_there:
                self._remove(session)
        if is_there:
            self._on_leave(session)

    def _get(self, key: int | None) -> S | None:
        session = None if key is None else self._sessions.get(key)
        if session is not None:
            self._sessions.move_to_end(session.record.key)
        return session

    def _note_latest(self, record: SessionRecord) -> None:
        self._latest[("owner", record.owner)] = record.key
        if record.own_address and not record.is_claimed:
            self._latest[("address", record.own_address)] = record.key

    def _remove(self, session: S) -> S:
        record = session.record
        self._sessions.pop(record.key, None)
        for name in _names_of(record):
            if self._by_name.get(name) == record.key:
                del self._by_name[name]
        for where in (("owner", record.owner), ("address", record.address)):
            if self._latest.get(where) == record.key:
                del self._latest[where]
        return session
