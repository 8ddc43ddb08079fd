"""Session stores: what is written is there, and no step is written twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.sqlite_store import SQLiteStore
from llmserve_env.server.store import SessionRecord, SessionStore, open_store
from llmserve_env.tasks.catalog import load_task

TASK = load_task("static_workload")
WANTED = {"batch_cap": 96, "kv_budget_fraction": 0.1 + 0.2, "priority_routing": True}
ACTION = tuple(TASK.knobs_from_mapping(WANTED).tolist())


def record(session_id: str, client: str = "here", created_at_s: float | None = None) -> SessionRecord:
    created = time.time() if created_at_s is None else created_at_s
    return SessionRecord(session_id, client, "static_workload", 1, "1", 2**32 - 1, None, created)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    found = open_store("memory" if request.param == "memory" else f"sqlite:///{tmp_path / 'a' / 'sessions.db'}")
    yield found
    found.close()


def test_a_session_comes_back_as_it_was_written(store: SessionStore) -> None:
    key = store.create(record("s"))
    assert store.append(key, 0, ACTION, time.time())
    found = store.load("s")
    assert found is not None
    assert (found.key, found.seed, found.actions) == (key, 2**32 - 1, [ACTION])
    assert store.load("t") is None


def test_a_step_is_taken_once(store: SessionStore) -> None:
    key = store.create(record("s"))
    assert store.append(key, 0, ACTION, 0.0)
    assert not store.append(key, 0, ACTION, 0.0)
    assert store.actions_from(key, 0) == [ACTION]


def test_steps_of_a_replaced_session_are_gone_and_no_more_can_be_added(store: SessionStore) -> None:
    old = store.create(record("s"))
    store.append(old, 0, ACTION, 0.0)
    new = store.create(record("s"))
    assert new != old
    assert not store.append(old, 1, ACTION, 0.0)
    found = store.load("s")
    assert found is not None
    assert (store.actions_from(old, 0), found.key, store.count()) == ([], new, 1)


def test_the_latest_session_of_a_client_is_known(store: SessionStore) -> None:
    for name, client in (("a", "x"), ("b", "x"), ("c", "y")):
        store.create(record(name, client))
    assert (store.latest_of("x"), store.latest_of("y"), store.latest_of("z")) == ("b", "c", None)


def test_idle_sessions_are_forgotten_and_others_are_not(store: SessionStore) -> None:
    now = time.time()
    store.create(record("idle", created_at_s=now - 100))
    busy = store.create(record("busy", created_at_s=now - 100))
    store.append(busy, 0, ACTION, now)
    store.create(record("new"))
    sessions = Sessions(store, max_live=4, max_stored=10)
    assert sessions.expire(idle_s=60.0) == 1
    assert [store.load(name) is not None for name in ("idle", "busy", "new")] == [False, True, True]
    assert sessions.num_stored == 2


def test_a_second_opening_of_the_file_sees_everything(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    first, second = SQLiteStore(path), SQLiteStore(path)
    key = first.create(record("s"))
    assert second.append(key, 0, ACTION, 0.0)
    assert not first.append(key, 0, ACTION, 0.0)
    assert first.actions_from(key, 0) == [ACTION]
    first.close()
    second.close()


def test_two_servers_over_one_store_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    here, there, alone = (Sessions(SQLiteStore(p), 4, 10) for p in (path, path, None))
    here.create("static_workload", 3, "s", None, "")
    alone.create("static_workload", 3, "s", None, "")
    for sessions in (here, there, there, here, there):
        mine = sessions.step(sessions.get("s", ""), ACTION, None)
        expected = alone.step(alone.get("s", ""), ACTION, None)
        assert mine.episode.step_count == expected.episode.step_count
        assert mine.episode.reward == expected.episode.reward
    assert here.current("s", "").episode.step_count == 5
    for step, sessions in enumerate((there, here, here, there, here), start=6):
        assert sessions.step(sessions.get("s", ""), ACTION, step).episode.step_count == step
    there.create("static_workload", 3, "s", None, "")
    assert here.step(here.get("s", ""), ACTION, None).episode.step_count == 1
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
        assert store.append(key, step, ACTION, time.time())
        store.tidy()
    again = open_store(f"sqlite:///{tmp_path / 'sessions.db'}")
    found = again.load("s")
    assert found is not None
    assert found.actions == [ACTION] * 50
    for opened in (store, again):
        opened.close()
