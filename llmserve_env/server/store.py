"""What is stored of a session, and where. Replaying what is stored reproduces the session exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import orjson

from llmserve_env.errors import ConfigError
from llmserve_env.server.clients import SHARED, Client
from llmserve_env.server.errors import DamagedJournalError

Action = tuple[float, ...]
COLUMNS = (
    "session_id",
    "is_secret",
    "over_http",
    "owner",
    "address",
    "program",
    "is_claimed",
    "task_id",
    "task_version",
    "environment_version",
    "seed",
    "weights",
    "created_at_min",
)
NAMES = ", ".join(COLUMNS)
EVICTED_AT_ONCE = 100
"""Sessions deleted in one transaction; steps of other sessions wait for no more than that."""


@dataclass(slots=True)
class SessionRecord:
    """A session as its seed and its actions, from which replaying reproduces everything else."""

    session_id: str
    is_secret: int
    """Whether the server made up the id, so that whoever knows it may use the session."""
    over_http: int
    """Whether it is played over HTTP; otherwise it is the record of an episode played over a WebSocket."""
    owner: str
    """Digest of the token that the client was given or sent."""
    address: str
    """The client's `place`."""
    program: str
    is_claimed: int
    """Whether the token has come back, so that calls without it must come from somebody else."""
    task_id: str
    task_version: int
    environment_version: str
    seed: int
    weights: str | None
    """Reward weights given at reset, as JSON."""
    created_at_min: int
    """On the store's clock."""
    actions: list[Action] = field(default_factory=list)
    key: int = 0
    """The store's key. A reset under the same session id gets a new one."""

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> SessionRecord:
        """A stored row: the key, then the columns in the order of COLUMNS; the actions are read separately."""
        return cls(**dict(zip(COLUMNS, row[1:], strict=True)), key=int(row[0]))

    def row(self) -> dict[str, Any]:
        """The columns, and the address if it stands for one client."""
        return {**{name: getattr(self, name) for name in COLUMNS}, "own_address": self.own_address}

    @property
    def own_address(self) -> str:
        """The client's address, empty where that stands for many clients."""
        return "" if self.address.startswith(SHARED) else self.address

    def replaces(self, former: SessionRecord) -> bool:
        """Whether the creator of this session would reach the former one under the same id."""
        if (self.session_id, self.is_secret, self.over_http) != (former.session_id, former.is_secret, former.over_http):
            return False
        # A client without a cookie has a new owner each time.
        is_same_address = not self.is_claimed and self.own_address != "" and self.address == former.address
        return bool(self.is_secret) or self.owner == former.owner or is_same_address


def action_text(action: Action) -> str:
    """An action as JSON, which keeps every bit of a float."""
    return orjson.dumps(action).decode()


def actions_of(rows: Iterable[tuple[int, str]], start: int) -> list[Action]:
    """The actions of journaled steps from `start` on; an error if one is missing or cannot be read."""
    found: list[Action] = []
    for expected, (step, text) in enumerate(rows, start=start):
        if step != expected:
            raise DamagedJournalError(f"step {expected + 1} of this session is missing in the store; POST /reset")
        try:
            found.append(tuple(orjson.loads(text)))
        except (orjson.JSONDecodeError, TypeError) as error:
            raise DamagedJournalError(
                f"step {step + 1} of this session cannot be read in the store; POST /reset"
            ) from error
    return found


class SessionStore(Protocol):
    """Durable sessions. Every call is complete when it returns. Methods may be called from several threads.

    A store that cannot be reached or written raises StoreUnavailableError. On an event loop no call waits for another
    program's lock: it raises StoreBusyError at once, and the caller tries again in a thread.
    """

    is_quick: bool
    """Whether calls take microseconds, so that they may run on the event loop."""
    is_shared: bool
    """Whether other processes may write to the store, too."""

    def create(self, record: SessionRecord) -> int:
        """Store a session, replacing the one that this client has under the same id; returns its key."""

    def append(self, key: int, step: int, action: Action, at_min: int) -> bool:
        """Journal step number `step` (from 0); False if that step is taken or the session is gone."""

    def find(self, session_id: str, client: Client) -> SessionRecord | None:
        """The session that this client reaches under an id, without its actions."""

    def latest(self, client: Client) -> SessionRecord | None:
        """The session that this client reset last, without its actions."""

    def claim(self, key: int) -> None:
        """Note that the session's token has come back."""

    def actions_from(self, key: int, start: int) -> list[Action]:
        """Actions from step `start` on, in order; DamagedJournalError if one is missing."""

    def probe(self) -> None:
        """Write something that changes nothing; StoreUnavailableError if that is not possible."""

    def count(self) -> int: ...

    def count_of(self, address: str) -> int:
        """Sessions of one address."""

    def num_bytes(self) -> int:
        """Size of everything stored."""

    def evict(self, address: str | None, count: int) -> int:
        """Delete the sessions that one address has not used for longest; without one, of the one that has most."""

    def clock_min(self) -> int:
        """Minutes for which servers of this store have run, as last read."""

    def tick(self) -> None:
        """Advance the clock by a minute, unless another server has done so since the last call."""

    def expire(self, before_min: int) -> int:
        """Delete sessions that have not been touched since; returns how many."""

    def tidy(self) -> None:
        """Do housekeeping that may take a while; called every few seconds, concurrently with other calls."""

    def close(self) -> None: ...


def open_store(url: str, max_bytes: int = 0) -> SessionStore:
    """The store that a URL names; ConfigError lists the accepted forms. `max_bytes` is a hard limit, 0 for none."""
    from llmserve_env.server.sqlite_store import SQLiteStore

    if url == "memory":
        return SQLiteStore(None, max_bytes)
    if url.startswith("sqlite:///"):
        return SQLiteStore(Path(url.removeprefix("sqlite:///")), max_bytes)
    if url.startswith(("postgresql://", "postgres://")):
        from llmserve_env.server.postgres_store import PostgresStore

        return PostgresStore(url)
    raise ConfigError(f"LLMSERVE_STORE must be memory, sqlite:///path or postgresql://…; got {url!r}")
