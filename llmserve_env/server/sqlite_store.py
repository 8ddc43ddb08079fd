"""Sessions in one SQLite file (write-ahead log), or in memory."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from llmserve_env.errors import ConfigError
from llmserve_env.server.store import COLUMNS, Action, SessionRecord, action_of, action_text

SCHEMA = """
CREATE TABLE IF NOT EXISTS sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    task_id TEXT NOT NULL,
    task_version INTEGER NOT NULL,
    environment_version TEXT NOT NULL,
    seed INTEGER NOT NULL,
    weights TEXT,
    created_at_s REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS sessions_by_client ON sessions (client, key);
CREATE INDEX IF NOT EXISTS sessions_by_age ON sessions (created_at_s);
CREATE TABLE IF NOT EXISTS steps (
    key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    action TEXT NOT NULL,
    at_s REAL NOT NULL,
    PRIMARY KEY (key, step)
) WITHOUT ROWID;
"""
NAMES = ", ".join(COLUMNS)
BUSY_TIMEOUT_S = 10.0
LOG_PAGES = 20_000
"""When the write-ahead log has grown so long, the next commit moves it into the file."""


class SQLiteStore:
    """One connection behind a lock. A commit takes tens of microseconds, so more connections would gain nothing."""

    is_quick = True

    def __init__(self, path: Path | None) -> None:
        self.is_shared = path is not None
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"cannot create {path.parent} for the session store ({error.strerror}); "
                    "set LLMSERVE_DATA_DIR to a writable folder, or LLMSERVE_STORE=memory"
                ) from error
        self._path = path
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(
                path or ":memory:", timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            # With NORMAL, commits survive a crash of the process; only a power cut can lose the last of them.
            pragmas = ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", f"wal_autocheckpoint={LOG_PAGES}")
            for pragma in pragmas:
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(SCHEMA)
        except sqlite3.Error as error:
            raise ConfigError(
                f"cannot open the session store {path} ({error}); "
                "set LLMSERVE_DATA_DIR to a writable folder, or LLMSERVE_STORE=memory"
            ) from error

    def create(self, record: SessionRecord) -> int:
        values = [getattr(record, name) for name in COLUMNS]
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._db.execute("DELETE FROM sessions WHERE session_id = ?", (record.session_id,))
                marks = ", ".join("?" * len(values))
                cursor = self._db.execute(f"INSERT INTO sessions ({NAMES}) VALUES ({marks})", values)
                key = int(cursor.lastrowid or 0)
                rows = [(key, i, action_text(action), record.created_at_s) for i, action in enumerate(record.actions)]
                self._db.executemany("INSERT INTO steps VALUES (?, ?, ?, ?)", rows)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        return key

    def append(self, key: int, step: int, action: Action, at_s: float) -> bool:
        with self._lock:
            cursor = self._db.execute(
                "INSERT OR IGNORE INTO steps SELECT ?1, ?2, ?3, ?4 "
                "WHERE EXISTS (SELECT 1 FROM sessions WHERE key = ?1)",
                (key, step, action_text(action), at_s),
            )
            return cursor.rowcount == 1

    def load(self, session_id: str) -> SessionRecord | None:
        with self._lock:
            row = self._db.execute(f"SELECT key, {NAMES} FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        if row is None:
            return None
        return SessionRecord.of_row(row[0], row[1:], self.actions_from(row[0], 0))

    def actions_from(self, key: int, start: int) -> list[Action]:
        with self._lock:
            rows = self._db.execute(
                "SELECT action FROM steps WHERE key = ? AND step >= ? ORDER BY step", (key, start)
            ).fetchall()
        return [action_of(text) for (text,) in rows]

    def latest_of(self, client: str) -> str | None:
        with self._lock:
            row = self._db.execute(
                "SELECT session_id FROM sessions WHERE client = ? ORDER BY key DESC LIMIT 1", (client,)
            ).fetchone()
        return None if row is None else str(row[0])

    def count(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT COUNT(*) FROM sessions").fetchone()[0])

    def expire(self, before_s: float) -> int:
        with self._lock:
            cursor = self._db.execute(
                "DELETE FROM sessions WHERE created_at_s < ?1 AND NOT EXISTS "
                "(SELECT 1 FROM steps WHERE steps.key = sessions.key AND steps.at_s >= ?1)",
                (before_s,),
            )
            return cursor.rowcount

    def tidy(self) -> None:
        # This waits for the disk. It has its own connection, so that no step waits for it.
        if self._path is not None:
            with closing(sqlite3.connect(self._path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as db:
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def close(self) -> None:
        with self._lock:
            self._db.close()
