"""Session stores: what is written is there, no step is written twice, and sessions belong to somebody."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.server.clients import Client
from llmserve_env.server.errors import DamagedJournalError
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.sqlite_store import SQLiteStore
from llmserve_env.server.store import SessionRecord, SessionStore, open_store
from llmserve_env.server.store_limits import StoreLimits
from llmserve_env.tasks.catalog import load_task
from tools.postgres import postgres, programs

TASK = load_task("static_workload")
WANTED = {"batch_cap": 96, "kv_budget_fraction": 0.1 + 0.2, "priority_routing": True}
KNOBS = TASK.knobs_from_mapping(WANTED)
ACTION = tuple(TASK.action_from_knobs(KNOBS).tolist())
CHANGES = tuple(enumerate(KNOBS.tolist()))
HERE = Client("192.0.2.1")
MISSING = pytest.mark.skipif(
    programs() is None, reason="PostgreSQL is not installed (Debian: apt-get install postgresql)"
)


def record(session_id: str, client: Client = HERE, at_min: int = 0, is_secret: int = 1) -> SessionRecord:
    owner = client.owner or f"owner of {session_id}"
    is_claimed = int(bool(client.owner))
    names = (owner, client.place, client.program, is_claimed)
    return SessionRecord(session_id, is_secret, 1, *names, "static_workload", 1, "1", 2**32 - 1, None, at_min)


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture(params=["memory", "file", pytest.param("postgres", marks=[pytest.mark.slow, MISSING])])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    if request.param == "postgres":
        found = open_store(request.getfixturevalue("database"))
        found.expire(before_min=1 << 40)
    else:
        found = open_store("memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'a' / 'sessions.db'}")
    yield found
    found.close()


def test_a_session_comes_back_as_it_was_written(store: SessionStore) -> None:
    key = store.create(record("s"))
    assert store.append(key, 0, ACTION, 0)
    found = store.find("s", HERE)
    assert found is not None
    assert (found.key, found.seed, store.actions_from(key, 0)) == (key, 2**32 - 1, [ACTION])
    assert store.find("t", HERE) is None


def test_a_step_is_taken_once(store: SessionStore) -> None:
    key = store.create(record("s"))
    assert store.append(key, 0, ACTION, 0)
    assert not store.append(key, 0, ACTION, 0)
    assert store.actions_from(key, 0) == [ACTION]


def test_steps_of_a_replaced_session_are_gone_and_no_more_can_be_added(store: SessionStore) -> None:
    old = store.create(record("s"))
    store.append(old, 0, ACTION, 0)
    new = store.create(record("s"))
    assert new != old
    assert not store.append(old, 1, ACTION, 0)
    found = store.find("s", HERE)
    assert found is not None
    assert (store.actions_from(old, 0), found.key, store.count()) == ([], new, 1)


def test_a_chosen_id_is_the_owners_and_a_secret_one_is_everybodys_who_knows_it(store: SessionStore) -> None:
    alice, bob = Client("192.0.2.1", owner="alice"), Client("192.0.2.1", owner="bob")
    stranger, neighbour, proxied = Client("192.0.2.9"), Client("192.0.2.1"), Client("192.0.2.1", is_shared=True)
    store.create(record("secret", alice))
    mine = store.create(record("mine", alice, is_secret=0))
    theirs = store.create(record("mine", bob, is_secret=0))
    found = [store.find("mine", client) for client in (alice, bob, stranger, proxied)]
    assert [one and one.key for one in found] == [mine, theirs, None, None]
    assert all(store.find("secret", client) for client in (alice, bob, stranger, neighbour, proxied))


def test_the_latest_session_is_the_clients_own(store: SessionStore) -> None:
    alice, anybody, elsewhere = Client("192.0.2.1", owner="alice"), Client("192.0.2.1"), Client("192.0.2.9")
    assert store.latest(anybody) is None
    first = store.create(record("a", anybody))
    second = store.create(record("b", alice))
    found = [store.latest(client) for client in (anybody, alice, elsewhere, Client("192.0.2.1", is_shared=True))]
    assert [one and one.key for one in found] == [first, second, None, None]
    store.claim(first)
    assert store.latest(anybody) is None


def test_idle_sessions_are_forgotten_and_others_are_not(store: SessionStore) -> None:
    store.create(record("idle", at_min=100))
    busy = store.create(record("busy", at_min=100))
    store.append(busy, 0, ACTION, 200)
    store.create(record("new", at_min=200))
    assert store.expire(before_min=150) == 1
    assert [store.find(name, HERE) is not None for name in ("idle", "busy", "new")] == [False, True, True]
    assert store.count() == 2


def test_the_clock_of_the_store_advances_once_a_minute_however_many_servers_tick(tmp_path: Path) -> None:
    one, two = (SQLiteStore(tmp_path / "sessions.db") for _ in range(2))
    for _ in range(5):
        one.tick()
        two.tick()
    assert one.clock_min() == 5
    for opened in (one, two):
        opened.close()


def test_a_client_that_has_its_share_loses_its_own_oldest_sessions(store: SessionStore) -> None:
    limits = StoreLimits(store, max_sessions=10, max_per_client=3)
    honest, greedy = Client("192.0.2.1"), Client("192.0.2.2")
    store.create(record("honest", honest))
    for number in range(20):
        limits.make_room(greedy.place)
        store.create(record(f"greedy {number}", greedy))
        limits.note_created()
    assert store.find("honest", honest) is not None
    assert [store.find(f"greedy {number}", greedy) is not None for number in (0, 19)] == [False, True]
    assert store.count_of(greedy.place) == 3


def test_a_full_store_takes_from_the_client_that_has_most(store: SessionStore) -> None:
    limits = StoreLimits(store, max_sessions=6, max_per_client=6)
    few, many, new = Client("192.0.2.1"), Client("192.0.2.2"), Client("192.0.2.3")
    for name, client in (("few", few), *((f"many {n}", many) for n in range(5)), ("new", new)):
        limits.make_room(client.place)
        store.create(record(name, client))
        limits.note_created()
    assert [store.find(name, HERE) is not None for name in ("few", "many 0", "many 1", "new")] == [
        True,
        False,
        True,
        True,
    ]


def test_a_store_that_is_too_large_takes_from_the_client_that_has_most(store: SessionStore) -> None:
    limits = StoreLimits(store, max_bytes=store.num_bytes())
    store.create(record("old"))
    limits.make_room("192.0.2.7")
    assert store.find("old", HERE) is None


def test_a_journal_with_a_missing_step_is_not_replayed(store: SessionStore) -> None:
    key = store.create(record("s"))
    for step in (0, 1, 3):
        store.append(key, step, ACTION, 0)
    with pytest.raises(DamagedJournalError, match="step 3 of this session is missing"):
        store.actions_from(key, 0)
    assert store.actions_from(key, 3) == [ACTION]


def test_a_second_opening_of_the_file_sees_everything(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    first, second = SQLiteStore(path), SQLiteStore(path)
    key = first.create(record("s"))
    assert second.append(key, 0, ACTION, 0)
    assert not first.append(key, 0, ACTION, 0)
    assert first.actions_from(key, 0) == [ACTION]
    first.close()
    second.close()


def stepped(sessions: Sessions, step_index: int | None = None) -> tuple[int, float]:
    session = sessions.step(sessions.get("s", HERE), CHANGES, step_index, HERE)
    with session.held.use() as episode:
        return episode.step_count, episode.reward


def test_two_servers_over_one_store_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    here, there, alone = (Sessions(SQLiteStore(p)) for p in (path, path, None))
    for sessions in (here, alone):
        sessions.create("static_workload", 3, "s", None, HERE)
    for sessions in (here, there, there, here, there):
        assert stepped(sessions) == stepped(alone)
    with here.current("s", HERE).held.use() as episode:
        assert episode.step_count == 5
    for step, sessions in enumerate((there, here, here, there, here), start=6):
        assert stepped(sessions, step)[0] == step
    there.create("static_workload", 3, "s", None, HERE)
    assert stepped(here)[0] == 1
    for sessions in (here, there, alone):
        sessions.store.close()


def test_a_store_that_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="LLMSERVE_DATA_DIR"):
        open_store(f"sqlite:///{tmp_path / 'file' / 'sessions.db'}")
    with pytest.raises(ConfigError, match="sqlite:///path"):
        open_store("redis://nowhere")


def test_tidying_keeps_everything(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'sessions.db'}")
    key = store.create(record("s"))
    for step in range(50):
        assert store.append(key, step, ACTION, 0)
        store.tidy()
    again = open_store(f"sqlite:///{tmp_path / 'sessions.db'}")
    assert again.actions_from(key, 0) == [ACTION] * 50
    for opened in (store, again):
        opened.close()


OLD_SCHEMA = """
CREATE TABLE sessions (key INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL UNIQUE, client TEXT NOT NULL,
    task_id TEXT NOT NULL, task_version INTEGER NOT NULL, environment_version TEXT NOT NULL, seed INTEGER NOT NULL,
    weights TEXT, created_at_s REAL NOT NULL);
CREATE TABLE steps (key INTEGER NOT NULL REFERENCES sessions (key) ON DELETE CASCADE, step INTEGER NOT NULL,
    action TEXT NOT NULL, at_s REAL NOT NULL, PRIMARY KEY (key, step)) WITHOUT ROWID;
"""


def test_sessions_of_an_older_version_are_taken_over(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "sessions.db") as old:
        old.executescript(OLD_SCHEMA)
        old.execute(
            "INSERT INTO sessions VALUES (7, 'old', 'x', 'static_workload', 1, '1', 5, NULL, ?)", (time.time(),)
        )
        old.execute("INSERT INTO steps VALUES (7, 0, '[1.0]', ?)", (time.time(),))
    old.close()
    for _ in range(2):
        store = open_store(f"sqlite:///{tmp_path / 'sessions.db'}")
        found = store.find("old", HERE)
        assert found is not None
        assert (found.key, found.seed, store.actions_from(7, 0), store.count()) == (7, 5, [(1.0,)], 1)
        assert store.create(record("next")) > 7
        store.evict(HERE.place, 1)
        store.close()
