"""Sessions in PostgreSQL: the same promises, and several workers that share them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from llmserve_env.errors import ConfigError
from server.sessions import Sessions
from server.store import SessionRecord, SessionStore, open_store
from tests.server.postgres import postgres, programs
from tests.server.running import RunningServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed (Debian: apt-get install postgresql)"),
]
ACTION = (96.0, 0.1 + 0.2, 0.0, 0.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


@pytest.fixture
def store(url: str) -> Iterator[SessionStore]:
    found = open_store(url)
    found.expire(time.time() + 1_000)
    yield found
    found.close()


def record(session_id: str, created_at_s: float | None = None) -> SessionRecord:
    created = time.time() if created_at_s is None else created_at_s
    return SessionRecord(session_id, "here", "static_workload", 1, "1", 2**32 - 1, None, created)


def test_the_store_keeps_the_same_promises(store: SessionStore) -> None:
    old = store.create(record("s"))
    assert store.append(old, 0, ACTION, time.time())
    assert not store.append(old, 0, ACTION, time.time())
    found = store.load("s")
    assert found is not None
    assert (found.seed, found.actions, found.key) == (2**32 - 1, [ACTION], old)
    new = store.create(record("s"))
    assert not store.append(old, 1, ACTION, time.time())
    assert (store.key_of("s"), store.actions_from(old, 0), store.latest_of("here"), store.count()) == (new, [], "s", 1)
    store.create(record("idle", created_at_s=0.0))
    assert store.expire(before_s=1.0) == 1
    assert (store.load("idle"), store.load("none")) == (None, None)


def test_workers_follow_each_other(url: str, store: SessionStore) -> None:
    here, there, alone = Sessions(store, 4, 10), Sessions(open_store(url), 4, 10), Sessions(open_store("memory"), 4, 10)
    for sessions in (here, alone):
        sessions.create("bursty_workload", 3, "s", None, "")
    for sessions in (here, there, there, here, there, here):
        mine = sessions.step(sessions.get("s", ""), ACTION, None)
        expected = alone.step(alone.get("s", ""), ACTION, None)
        assert (mine.episode.step_count, mine.episode.reward) == (expected.episode.step_count, expected.episode.reward)
    there.store.close()
    alone.store.close()


def test_sessions_hop_between_the_workers_of_a_server_and_survive_its_death(url: str) -> None:
    played: list[float] = []
    with RunningServer("memory") as fresh:
        server = RunningServer(url, workers=2)
        for attempt in range(2):
            for step in range(len(played) + 1, len(played) + 31):
                # A new connection each time, so that either worker may get it.
                body = {"session_id": "hopping", "action": {"batch_cap": 96}, "step_index": step}
                if step == 1:
                    httpx.post(f"{server.url}/reset", json={"session_id": "hopping", "seed": 1}, timeout=60)
                answer = httpx.post(f"{server.url}/step", json=body, timeout=60)
                assert answer.status_code == 200, answer.text
                played.append(answer.json()["reward"])
            server.kill()
            if attempt == 0:
                server = RunningServer(url, workers=2)
        httpx.post(f"{fresh.url}/reset", json={"session_id": "s", "seed": 1}, timeout=60)
        body = {"session_id": "s", "action": {"batch_cap": 96}}
        assert played == [httpx.post(f"{fresh.url}/step", json=body).json()["reward"] for _ in played]


def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="LLMSERVE_STORE"):
        open_store("postgresql://nobody@127.0.0.1:1/none")
