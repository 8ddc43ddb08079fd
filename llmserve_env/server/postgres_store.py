"""Sessions in PostgreSQL, shared by any number of workers and machines."""

from __future__ import annotations

from typing import Any

from llmserve_env.errors import ConfigError
from llmserve_env.server.store import COLUMNS, Action, SessionRecord, action_of, action_text

SCHEMA = """
CREATE TABLE IF NOT EXISTS llmserve_sessions (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    client TEXT NOT NULL,
    task_id TEXT NOT NULL,
    task_version INTEGER NOT NULL,
    environment_version TEXT NOT NULL,
    seed BIGINT NOT NULL,
    weights TEXT,
    created_at_s DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS llmserve_sessions_by_client ON llmserve_sessions (client, key);
CREATE INDEX IF NOT EXISTS llmserve_sessions_by_age ON llmserve_sessions (created_at_s);
CREATE TABLE IF NOT EXISTS llmserve_steps (
    key BIGINT NOT NULL REFERENCES llmserve_sessions (key) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    action TEXT NOT NULL,
    at_s DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (key, step)
);
"""
SCHEMA_LOCK = 0x11A5E47E
"""Two workers that start at once must not create the tables at once."""
NAMES = ", ".join(COLUMNS)
CONNECT_TIMEOUT_S = 10.0


class PostgresStore:
    """A pool of connections; each call is one transaction."""

    is_quick = False
    is_shared = True

    def __init__(self, url: str) -> None:
        try:
            import psycopg
            from psycopg_pool import ConnectionPool
        except ImportError as error:
            raise ConfigError(
                "LLMSERVE_STORE names PostgreSQL, which needs the extra: pip install 'openenv-llmserve-env[postgres]'"
            ) from error
        try:
            with psycopg.connect(url, connect_timeout=int(CONNECT_TIMEOUT_S)) as db:
                db.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
                db.execute(SCHEMA)
        except psycopg.Error as error:
            raise ConfigError(f"cannot use the session store of LLMSERVE_STORE: {str(error).strip()}") from error
        self._pool: Any = ConnectionPool(url, min_size=1, max_size=16, open=True)

    def create(self, record: SessionRecord) -> int:
        values = [getattr(record, name) for name in COLUMNS]
        marks = ", ".join(["%s"] * len(values))
        with self._pool.connection() as db:
            db.execute("DELETE FROM llmserve_sessions WHERE session_id = %s", (record.session_id,))
            row = db.execute(
                f"INSERT INTO llmserve_sessions ({NAMES}) VALUES ({marks}) RETURNING key", values
            ).fetchone()
            key = int(row[0])
            rows = [(key, i, action_text(action), record.created_at_s) for i, action in enumerate(record.actions)]
            if rows:
                db.cursor().executemany("INSERT INTO llmserve_steps VALUES (%s, %s, %s, %s)", rows)
        return key

    def append(self, key: int, step: int, action: Action, at_s: float) -> bool:
        with self._pool.connection() as db:
            cursor = db.execute(
                "INSERT INTO llmserve_steps SELECT %s, %s, %s, %s "
                "WHERE EXISTS (SELECT 1 FROM llmserve_sessions WHERE key = %s) ON CONFLICT DO NOTHING",
                (key, step, action_text(action), at_s, key),
            )
            return bool(cursor.rowcount == 1)

    def load(self, session_id: str) -> SessionRecord | None:
        with self._pool.connection() as db:
            row = db.execute(
                f"SELECT key, {NAMES} FROM llmserve_sessions WHERE session_id = %s", (session_id,)
            ).fetchone()
            if row is None:
                return None
            return SessionRecord.of_row(int(row[0]), row[1:], self._actions(db, row[0], 0))

    def actions_from(self, key: int, start: int) -> list[Action]:
        with self._pool.connection() as db:
            return self._actions(db, key, start)

    def latest_of(self, client: str) -> str | None:
        found: str | None = self._one(
            "SELECT session_id FROM llmserve_sessions WHERE client = %s ORDER BY key DESC LIMIT 1", client
        )
        return found

    def count(self) -> int:
        return int(self._one("SELECT COUNT(*) FROM llmserve_sessions"))

    def expire(self, before_s: float) -> int:
        with self._pool.connection() as db:
            cursor = db.execute(
                "DELETE FROM llmserve_sessions s WHERE created_at_s < %s AND NOT EXISTS "
                "(SELECT 1 FROM llmserve_steps t WHERE t.key = s.key AND t.at_s >= %s)",
                (before_s, before_s),
            )
            return int(cursor.rowcount)

    def tidy(self) -> None:
        """Do nothing: PostgreSQL cleans up by itself."""

    def close(self) -> None:
        self._pool.close()

    def _one(self, query: str, *values: Any) -> Any:
        with self._pool.connection() as db:
            row = db.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _actions(self, db: Any, key: int, start: int) -> list[Action]:
        rows = db.execute(
            "SELECT action FROM llmserve_steps WHERE key = %s AND step >= %s ORDER BY step", (key, start)
        ).fetchall()
        return [action_of(text) for (text,) in rows]
