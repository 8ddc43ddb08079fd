"""Sessions in one SQLite file (write-ahead log), or in memory."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from llmserve_env.errors import ConfigError
from llmserve_env.server import store_sql as sql
from llmserve_env.server.clients import Client
from llmserve_env.server.errors import StoreBusyError, StoreUnavailableError
from llmserve_env.server.store import EVICTED_AT_ONCE, Action, SessionRecord, action_text, actions_of

T = TypeVar("T")
BUSY_TIMEOUT_S = 5.0
RETRY_INTERVAL_S = 0.02
LOG_PAGES = 20_000
"""Length of the write-ahead log at which the next commit moves it into the file."""
PAGE_BYTES = 4096
DETAILS = {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "without_rowid": " WITHOUT ROWID"}


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class SQLiteStore:
    """One connection behind a lock. A commit takes tens of microseconds, so more connections would gain nothing."""

    is_quick = True

    def __init__(self, path: Path | None, max_bytes: int = 0) -> None:
        self.is_shared = path is not None
        self._path, self._lock, self._clock_min = path, threading.Lock(), 0
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = self._connect()
            self._identity: tuple[int, int] | None = None
            with self._patient_connection() as db:
                _prepare(db)
            self._identity = self._identity_now()
            # A hard limit of the file, below which the sessions are kept anyway; 0 pages change nothing.
            for pragma in ("synchronous=NORMAL", f"wal_autocheckpoint={LOG_PAGES}", "foreign_keys=ON"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.execute(f"PRAGMA max_page_count={max_bytes // PAGE_BYTES}")
            self.clock_min()
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"cannot open the session store {path} ({error}); "
                "set LLMSERVE_DATA_DIR to a writable folder, or LLMSERVE_STORE=memory"
            ) from error

    def _connect(self, timeout_s: float = 0.0) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path or ":memory:", timeout=timeout_s, isolation_level=None, check_same_thread=False
        )

    def _patient_connection(self) -> AbstractContextManager[sqlite3.Connection]:
        """A separate connection that waits for other programs, so that no step has to."""
        self._check_file()
        return nullcontext(self._db) if self._path is None else closing(self._connect(BUSY_TIMEOUT_S))

    def _identity_now(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        found = os.stat(self._path)
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        """Refuse to go on with a file that has been removed: what is written there is gone when the process ends."""
        if self._identity is None:
            return
        try:
            is_there = self._identity_now() == self._identity
        except OSError:
            is_there = False
        if not is_there:
            raise StoreUnavailableError("the session store's file has been removed or replaced; restart the server")

    def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run statements. While another program locks the file, a thread waits; an event loop gets an error at once."""
        give_up_at_s = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                self._check_file()
                with self._lock:
                    return work(self._db)
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise StoreUnavailableError(
                        f"the session store cannot be used ({error}); try again later"
                    ) from error
                if _on_event_loop() or time.monotonic() > give_up_at_s:
                    raise StoreBusyError("another program holds the session store's lock; try again later") from error
            time.sleep(RETRY_INTERVAL_S)

    def _one(self, query: str, **values: Any) -> Any:
        return self._call(lambda db: db.execute(query, values).fetchone())

    def create(self, record: SessionRecord) -> int:
        row = record.row()
        actions = [action_text(action) for action in record.actions]

        def work(db: sqlite3.Connection) -> int:
            with _transaction(db):
                db.execute(sql.DELETE_SAME, row)
                key = int(db.execute(sql.INSERT_SESSION, row).fetchone()[0])
                steps = [
                    {"key": key, "step": step, "action": text, "at_min": record.created_at_min}
                    for step, text in enumerate(actions)
                ]
                db.executemany(sql.INSERT_STEPS, steps)
                return key

        return self._call(work)

    def append(self, key: int, step: int, action: Action, at_min: int) -> bool:
        row = {"key": key, "step": step, "action": action_text(action), "at_min": at_min}
        return self._call(lambda db: db.execute(sql.INSERT_STEP, row).rowcount == 1)

    def find(self, session_id: str, client: Client) -> SessionRecord | None:
        asked = sql.client_parameters(client.address, client.owner, client.is_shared)
        row = self._one(sql.FIND, session_id=session_id, **asked)
        return None if row is None else SessionRecord.of_row(row)

    def latest(self, client: Client) -> SessionRecord | None:
        row = self._one(sql.LATEST, **sql.client_parameters(client.address, client.owner, client.is_shared))
        return None if row is None else SessionRecord.of_row(row)

    def claim(self, key: int) -> None:
        self._call(lambda db: db.execute(sql.CLAIM, {"key": key}))

    def actions_from(self, key: int, start: int) -> list[Action]:
        rows = self._call(lambda db: db.execute(sql.ACTIONS, {"key": key, "start": start}).fetchall())
        return actions_of(rows, start)

    def probe(self) -> None:
        self._call(lambda db: db.execute(sql.PROBE))

    def count(self) -> int:
        return int(self._one(sql.COUNT)[0])

    def count_of(self, address: str) -> int:
        return int(self._one(sql.COUNT_OF, address=address)[0])

    def num_bytes(self) -> int:
        pages = [int(self._one(f"PRAGMA {name}")[0]) for name in ("page_count", "freelist_count")]
        return (pages[0] - pages[1]) * PAGE_BYTES

    def evict(self, address: str | None, count: int) -> int:
        if address is None:
            heaviest = self._one(sql.HEAVIEST)
            address = "" if heaviest is None else str(heaviest[0])
        return self._delete(sql.LEAST_USED, address=address, count=count)

    def expire(self, before_min: int) -> int:
        return self._delete(sql.IDLE, before_min=before_min)

    def _delete(self, query: str, **values: Any) -> int:
        """Delete the sessions that a query selects, a few at a time, because steps wait for each transaction."""
        found = self._call(lambda db: db.execute(query, values).fetchall())
        rows, gone = [{"key": key, "used": used} for key, used in found], 0
        for start in range(0, len(rows), EVICTED_AT_ONCE):
            some = rows[start : start + EVICTED_AT_ONCE]
            try:
                with self._lock if self._path is None else nullcontext(), self._patient_connection() as db:
                    db.execute("PRAGMA foreign_keys=ON")
                    with _transaction(db):
                        gone += db.executemany(sql.DELETE_UNUSED, some).rowcount
            except sqlite3.Error as error:
                raise StoreUnavailableError(f"old sessions cannot be deleted ({error})") from error
        return gone

    def clock_min(self) -> int:
        if not self._clock_min:
            self._clock_min = int(self._one(sql.CLOCK)[0])
        return self._clock_min

    def tick(self) -> None:
        seen = self._clock_min
        self._call(lambda db: db.execute(sql.TICK, {"seen": seen}))
        self._clock_min = int(self._one(sql.CLOCK)[0])

    def tidy(self) -> None:
        try:
            with self._lock if self._path is None else nullcontext(), self._patient_connection() as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")
                # Under steady writing the log would only grow; little is left to move now, so writers hardly wait.
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise StoreUnavailableError(f"the session store's log cannot be moved into its file ({error})") from error

    def close(self) -> None:
        with self._lock:
            self._db.close()


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All statements or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _prepare(db: sqlite3.Connection) -> None:
    """Create the tables, or bring those of an older version up to date."""
    # With NORMAL, commits survive a crash of the process; only a power cut can lose the last of them.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", f"wal_autocheckpoint={LOG_PAGES}"):
        db.execute(f"PRAGMA {pragma}")
    with _transaction(db):
        for statement in sql.TABLES:
            db.execute(statement.format(**DETAILS))
        is_old = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'sessions'").fetchone()
        if is_old:
            for statement in sql.UPGRADE:
                db.execute(statement.format(sessions="sessions", steps="steps", overriding=""))
