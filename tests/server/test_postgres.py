"""Sessions in PostgreSQL: the same promises, and several workers that share them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.models import ServeAction
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.store import SessionRecord, SessionStore, open_store
from llmserve_env.tasks.catalog import load_task
from tests.server.postgres import postgres, programs
from tests.server.running import RunningServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed (Debian: apt-get install postgresql)"),
]
MAX_CONNECTIONS = 500
WANTED = {"batch_cap": 96, "kv_budget_fraction": 0.1 + 0.2, "priority_routing": True}
ACTION = tuple(load_task("static_workload").knobs_from_mapping(WANTED).tolist())


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
    again = store.load("s")
    assert again is not None
    assert (again.key, store.actions_from(old, 0), store.latest_of("here"), store.count()) == (new, [], "s", 1)
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


def client_of_each_worker(server: RunningServer, stack: ExitStack, workers: int) -> list[httpx.Client]:
    """A kept connection to every worker; which one takes a new connection is the kernel's choice."""
    found: dict[str, httpx.Client] = {}
    for _ in range(MAX_CONNECTIONS):
        client = stack.enter_context(httpx.Client(base_url=server.url, timeout=60))
        found.setdefault(client.get("/health").headers["x-worker"], client)
        if len(found) == workers:
            return list(found.values())
    raise AssertionError(f"{MAX_CONNECTIONS} connections reached {len(found)} of {workers} workers")


def hop(clients: list[httpx.Client], steps: Iterable[int]) -> list[float]:
    """Rewards of steps that the workers take in turn."""
    rewards = []
    for step in steps:
        client = clients[step % len(clients)]
        answer = client.post("/step", json={"session_id": "hopping", "action": {"batch_cap": 96}, "step_index": step})
        assert answer.status_code == 200, answer.text
        rewards.append(answer.json()["reward"])
    return rewards


def test_sessions_hop_between_the_workers_of_a_server_and_survive_its_death(url: str) -> None:
    played: list[float] = []
    for start in (1, 21):
        server = RunningServer(url, workers=2)
        with ExitStack() as stack:
            clients = client_of_each_worker(server, stack, workers=2)
            if start == 1:
                clients[0].post("/reset", json={"session_id": "hopping", "seed": 1}).raise_for_status()
            played += hop(clients, range(start, start + 20))
            server.kill()
    alone = Sessions(open_store("memory"), 1, 1)
    session = alone.create("static_workload", 1, "s", None, "")
    action = tuple(ServeAction(batch_cap=96).numbers())
    assert played == [alone.step(session, action, None).episode.reward for _ in played]
    alone.store.close()


def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="LLMSERVE_STORE"):
        open_store("postgresql://nobody@127.0.0.1:1/none")
