"""What is stored of a session, and where. Replaying what is stored reproduces the session exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from llmserve_env.errors import ConfigError

Action = tuple[float, ...]
COLUMNS = ("session_id", "client", "task_id", "task_version", "environment_version", "seed", "weights", "created_at_s")


@dataclass(slots=True)
class SessionRecord:
    """A session as its seed and its actions, from which replaying reproduces everything else."""

    session_id: str
    client: str
    task_id: str
    task_version: int
    environment_version: str
    seed: int
    weights: str | None
    """Reward weights given at reset, as JSON."""
    created_at_s: float
    actions: list[Action] = field(default_factory=list)
    key: int = 0
    """The store's key. A reset under the same session id gets a new one."""

    @classmethod
    def of_row(cls, key: int, columns: Sequence[Any], actions: list[Action]) -> SessionRecord:
        """A stored row, its columns in the order of COLUMNS."""
        return cls(**dict(zip(COLUMNS, columns, strict=True)), actions=actions, key=key)


def action_text(action: Action) -> str:
    """An action as JSON, which keeps every bit of a float."""
    return orjson.dumps(action).decode()


def action_of(text: str) -> Action:
    """The action of its text."""
    return tuple(orjson.loads(text))


class SessionStore(Protocol):
    """Durable sessions. Every call is complete when it returns. Methods may be called from several threads."""

    is_quick: bool
    """Whether calls take microseconds, so that they may run on the event loop."""
    is_shared: bool
    """Whether other processes may write to the store, too."""

    def create(self, record: SessionRecord) -> int:
        """Store a session, replacing one of the same id; returns its key."""

    def append(self, key: int, step: int, action: Action, at_s: float) -> bool:
        """Journal step number `step` (from 0); False if that step is taken or the session is gone."""

    def load(self, session_id: str) -> SessionRecord | None: ...

    def actions_from(self, key: int, start: int) -> list[Action]:
        """Actions from step `start` on, in order."""

    def latest_of(self, client: str) -> str | None:
        """The session that this client reset last."""

    def count(self) -> int: ...

    def expire(self, before_s: float) -> int:
        """Delete sessions that have not been touched since; returns how many."""

    def tidy(self) -> None:
        """Do housekeeping that may take a while; called every few seconds, concurrently with other calls."""

    def close(self) -> None: ...


def open_store(url: str) -> SessionStore:
    """The store that a URL names; ConfigError lists the accepted forms."""
    from llmserve_env.server.sqlite_store import SQLiteStore

    if url == "memory":
        return SQLiteStore(None)
    if url.startswith("sqlite:///"):
        return SQLiteStore(Path(url.removeprefix("sqlite:///")))
    if url.startswith(("postgresql://", "postgres://")):
        from llmserve_env.server.postgres_store import PostgresStore

        return PostgresStore(url)
    raise ConfigError(f"LLMSERVE_STORE must be memory, sqlite:///path or postgresql://…; got {url!r}")
