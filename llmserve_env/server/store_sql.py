"""The tables of a session store and the statements over them, for SQLite and PostgreSQL alike.

Parameters are written `:name`, as SQLite takes them. `{serial}` is the type of a key that the database counts up.
"""

from __future__ import annotations

from llmserve_env.server.store import COLUMNS, NAMES

TABLES = (
    """CREATE TABLE IF NOT EXISTS llmserve_sessions (
    key {serial},
    session_id TEXT NOT NULL,
    is_secret INTEGER NOT NULL,
    over_http INTEGER NOT NULL,
    owner TEXT NOT NULL,
    address TEXT NOT NULL,
    program TEXT NOT NULL,
    is_claimed INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    task_version INTEGER NOT NULL,
    environment_version TEXT NOT NULL,
    seed BIGINT NOT NULL,
    weights TEXT,
    created_at_min BIGINT NOT NULL
)""",
    "CREATE INDEX IF NOT EXISTS llmserve_sessions_by_id ON llmserve_sessions (session_id)",
    "CREATE INDEX IF NOT EXISTS llmserve_sessions_by_owner ON llmserve_sessions (owner, key)",
    "CREATE INDEX IF NOT EXISTS llmserve_sessions_by_address ON llmserve_sessions (address, key)",
    """CREATE TABLE IF NOT EXISTS llmserve_steps (
    key BIGINT NOT NULL REFERENCES llmserve_sessions (key) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    action TEXT NOT NULL,
    at_min BIGINT NOT NULL,
    PRIMARY KEY (key, step)
){without_rowid}""",
    "CREATE TABLE IF NOT EXISTS llmserve_clock (id INTEGER PRIMARY KEY, minutes BIGINT NOT NULL)",
    "INSERT INTO llmserve_clock VALUES (1, 0) ON CONFLICT DO NOTHING",
)
UPGRADE = (
    f"INSERT INTO llmserve_sessions (key, {NAMES}) {{overriding}}"
    "SELECT key, session_id, 1, 1, '', client, '', 0, task_id, task_version, environment_version, seed, weights, 0 "
    "FROM {sessions}",
    "INSERT INTO llmserve_steps SELECT key, step, action, 0 FROM {steps}",
    "DROP TABLE {steps}",
    "DROP TABLE {sessions}",
)
"""Copies the tables of version 1, whose ids all count as secret; idle times begin anew."""

INSERT_SESSION = (
    f"INSERT INTO llmserve_sessions ({NAMES}) VALUES ({', '.join(f':{name}' for name in COLUMNS)}) RETURNING key"
)
DELETE_SAME = (
    "DELETE FROM llmserve_sessions WHERE session_id = :session_id AND is_secret = :is_secret "
    "AND over_http = :over_http AND (is_secret = 1 OR owner = :owner OR (:is_claimed = 0 AND address = :own_address "
    "AND address <> ''))"
)
"""Deletes what `SessionRecord.replaces` says of a new session."""
INSERT_STEP = (
    "INSERT INTO llmserve_steps SELECT :key, :step, :action, :at_min "
    "WHERE EXISTS (SELECT 1 FROM llmserve_sessions WHERE key = :key) ON CONFLICT DO NOTHING"
)
INSERT_STEPS = "INSERT INTO llmserve_steps VALUES (:key, :step, :action, :at_min)"
FIND = (
    f"SELECT key, {NAMES} FROM llmserve_sessions WHERE session_id = :session_id AND (is_secret = 1 "
    "OR (owner = :owner AND owner <> '') OR (:owner = '' AND address = :address AND address <> '')) "
    "ORDER BY is_secret DESC, over_http DESC, key DESC LIMIT 1"
)
LATEST = (
    f"SELECT key, {NAMES} FROM llmserve_sessions WHERE over_http = 1 AND ((owner = :owner AND owner <> '') "
    "OR (:owner = '' AND is_claimed = 0 AND address = :address AND address <> '')) ORDER BY key DESC LIMIT 1"
)
CLAIM = "UPDATE llmserve_sessions SET is_claimed = 1 WHERE key = :key"
ACTIONS = "SELECT step, action FROM llmserve_steps WHERE key = :key AND step >= :start ORDER BY step"
COUNT = "SELECT COUNT(*) FROM llmserve_sessions"
COUNT_OF = "SELECT COUNT(*) FROM llmserve_sessions WHERE address = :address"
HEAVIEST = "SELECT address FROM llmserve_sessions GROUP BY address ORDER BY COUNT(*) DESC LIMIT 1"
LAST_USE = (
    "COALESCE((SELECT at_min FROM llmserve_steps t WHERE t.key = s.key ORDER BY step DESC LIMIT 1), s.created_at_min)"
)
LEAST_USED = (
    f"SELECT s.key, {LAST_USE} AS used FROM llmserve_sessions s WHERE s.address = :address "
    "ORDER BY used, s.key LIMIT :count"
)
IDLE = (
    f"SELECT s.key, {LAST_USE} AS used FROM llmserve_sessions s "
    f"WHERE s.created_at_min < :before_min AND {LAST_USE} < :before_min"
)
DELETE_UNUSED = (
    "DELETE FROM llmserve_sessions WHERE key IN "
    f"(SELECT s.key FROM llmserve_sessions s WHERE s.key = :key AND {LAST_USE} <= :used)"
)
"""A session that has been used since it was chosen stays."""
PROBE = "UPDATE llmserve_clock SET minutes = minutes WHERE id = 1"
CLOCK = "SELECT minutes FROM llmserve_clock WHERE id = 1"
TICK = "UPDATE llmserve_clock SET minutes = minutes + 1 WHERE id = 1 AND minutes = :seen"


def client_parameters(address: str, owner: str, is_shared: bool) -> dict[str, str]:
    """Parameters that identify the client; an address that many clients share identifies none of them."""
    return {"owner": owner, "address": "" if is_shared else address}
