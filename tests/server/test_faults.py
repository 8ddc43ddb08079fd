"""A store that is locked, full, away or damaged: nothing acknowledged is lost, nothing freezes, and all goes on."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from llmserve_env.server import sqlite_store
from llmserve_env.server.application import create_app
from llmserve_env.server.clients import Client
from llmserve_env.server.errors import StoreUnavailableError
from llmserve_env.server.housekeeping import repeat
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.store import SessionStore, open_store
from tests.server.conftest import settings
from tools.postgres import Cluster, programs

HERE = Client("testclient")
TIMEOUT_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def client(path: Path) -> Iterator[TestClient]:
    with TestClient(create_app(settings(store=f"sqlite:///{path}"))) as found:
        yield found


def step(client: TestClient, session_id: str) -> Any:
    return client.post("/step", json={"session_id": session_id, "action": {"batch_cap": 96}})


def test_a_foreign_lock_holds_up_only_those_who_write(
    client: TestClient, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = client.post("/reset", json={"seed": 1}).json()["session_id"]
    assert step(client, session).status_code == 200
    foreign = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    foreign.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite_store, "BUSY_TIMEOUT_S", 10 * TIMEOUT_S)
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(step(client, session)))
    waiting.start()
    seen: list[int] = []
    looking = threading.Thread(target=lambda: seen.extend(client.get(at).status_code for at in ("/health", "/tasks")))
    looking.start()
    looking.join(TIMEOUT_S)
    meanwhile = list(seen), list(answers)
    foreign.execute("COMMIT")
    waiting.join(TIMEOUT_S)
    # The step waits in a thread for the lock, so the event loop answers meanwhile.
    assert meanwhile == ([200, 200], [])
    assert answers[0].status_code == 200
    foreign.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite_store, "BUSY_TIMEOUT_S", 0.0)
    refused = step(client, session)
    assert (refused.status_code, "lock" in refused.json()["detail"]) == (503, True)
    assert client.get("/ready").status_code == 503
    foreign.close()
    assert step(client, session).json()["observation"]["step_index"] == 3


def fill(store: SessionStore, sessions: Sessions) -> None:
    with pytest.raises(StoreUnavailableError, match="full"):
        for _ in range(100_000):
            sessions.create("static_workload", 1, None, None, HERE)
    assert store.count() > 0


def test_a_full_disk_is_a_503_that_loses_nothing(path: Path) -> None:
    store = open_store(f"sqlite:///{path}", max_bytes=30 * sqlite_store.PAGE_BYTES)
    sessions = Sessions(store)
    first = sessions.create("static_workload", 1, None, None, HERE)
    fill(store, sessions)
    played, changes = 0, ((0, 96.0),)
    with pytest.raises(StoreUnavailableError):
        for _ in range(200):
            sessions.step(first, changes, None, HERE)
            played += 1
    with first.held.use() as episode:
        assert episode.step_count == played
    assert len(store.actions_from(first.key, 0)) == played
    store.close()
    again = Sessions(open_store(f"sqlite:///{path}"))
    with again.step(again.get(first.session_id, HERE), changes, played + 1, HERE).held.use() as episode:
        assert episode.step_count == played + 1
    again.store.close()


def test_an_answer_about_a_broken_store_has_its_id_and_is_counted(client: TestClient, path: Path) -> None:
    session = client.post("/reset", json={"seed": 1}).json()["session_id"]
    store = client.app.state.service.sessions.store  # type: ignore[attr-defined]
    store.close()
    refused = step(client, session)
    assert (refused.status_code, refused.headers["x-request-id"] != "", refused.headers["retry-after"]) == (
        503,
        True,
        "5",
    )
    metrics = client.get("/metrics").text
    assert 'llmserve_store_errors_total{where="a request"} 1.0' in metrics
    # Nobody has asked for /ready.
    assert "llmserve_ready 0.0" in metrics
    assert client.get("/health").status_code == 200
    assert not client.get("/ready").json()["checks"]["store"]["ok"]


@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
def test_a_store_whose_file_is_gone_takes_no_step_that_would_be_lost(
    client: TestClient, path: Path, is_replaced: bool
) -> None:
    session = client.post("/reset", json={"seed": 1}).json()["session_id"]
    assert step(client, session).status_code == 200
    moved = path.rename(path.with_name("moved.db"))
    if is_replaced:
        path.write_bytes(moved.read_bytes())
    store = client.app.state.service.sessions.store  # type: ignore[attr-defined]
    for housekeeping in (store.tidy, store.tick, partial(store.expire, 0), partial(store.evict, None, 1)):
        with pytest.raises(StoreUnavailableError, match="removed or replaced; restart the server"):
            housekeeping()
    assert path.exists() is is_replaced
    assert [step(client, session).status_code, client.post("/reset", json={}).status_code] == [503, 503]
    assert [client.get(page).status_code for page in ("/health", "/ready")] == [200, 503]
    moved.rename(path)
    assert step(client, session).json()["observation"]["step_index"] == 2


def test_work_that_is_repeated_goes_on_after_a_failure() -> None:
    done: list[str] = []
    failed: list[str] = []

    async def work() -> None:
        done.append("once")
        if len(done) in (1, 2):
            raise OSError("the disk is full")
        if len(done) == 4:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeat("a sweep", 0.0, work, failed.append))
    assert (len(done), failed) == (4, ["a sweep", "a sweep"])


def test_each_kind_of_failure_is_logged_once_and_a_bug_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    errors = [StoreUnavailableError("locked"), StoreUnavailableError("locked"), KeyError("bug"), KeyError("bug")]

    async def work() -> None:
        if not errors:
            raise asyncio.CancelledError
        raise errors.pop(0)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(repeat("a sweep", 0.0, work, lambda _: None))
    assert [bool(record.exc_info) for record in caplog.records] == [False, True]


def test_a_damaged_journal_is_not_replayed_in_silence(path: Path) -> None:
    with TestClient(create_app(settings(store=f"sqlite:///{path}"))) as client:
        session = client.post("/reset", json={"seed": 1}).json()["session_id"]
        for _ in range(4):
            step(client, session)
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM llmserve_steps WHERE step = 1")
    db.close()
    with TestClient(create_app(settings(store=f"sqlite:///{path}"))) as client:
        answers = [step(client, session), client.get("/state", params={"session_id": session})]
        assert [answer.status_code for answer in answers] == [409, 409]
        assert "step 2 of this session is missing" in answers[0].json()["detail"]


def test_a_jump_of_the_clock_deletes_nothing(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    session = client.post("/reset", json={"seed": 1}).json()["session_id"]
    monkeypatch.setattr("time.time", lambda: 4e9)
    sessions = client.app.state.service.sessions  # type: ignore[attr-defined]
    sessions.store.tick()
    assert sessions.expire(idle_min=24 * 60) == 0
    assert step(client, session).status_code == 200
    for _ in range(24 * 60 + 1):
        sessions.store.tick()
    assert sessions.expire(idle_min=24 * 60) == 1
    assert step(client, session).status_code == 404


@pytest.mark.slow
@pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed (apt-get install postgresql)")
def test_a_database_that_goes_away_and_comes_back_costs_503s_and_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    # The pool's pauses between attempts to reconnect grow from one second; here the second one would be a long wait.
    monkeypatch.setattr("psycopg_pool.base.AttemptWithBackoff.DELAY_BACKOFF", 1_000.0)
    with Cluster() as cluster, TestClient(create_app(settings(store=cluster.url))) as client:
        session = client.post("/reset", json={"seed": 1}).json()["session_id"]
        assert step(client, session).status_code == 200
        cluster.stop()
        refused = [step(client, session), client.post("/reset", json={}), client.get("/state")]
        assert [answer.status_code for answer in refused] == [503, 503, 503]
        assert [client.get("/health").status_code, client.get("/ready").status_code] == [200, 503]
        cluster.start()
        assert step(client, session).json()["observation"]["step_index"] == 2
