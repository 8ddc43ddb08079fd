"""Sessions in PostgreSQL: the same promises, and several workers that share them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.models import ServeAction
from llmserve_env.server.sessions import Sessions
from llmserve_env.server.store import open_store
from tests.server.running import RunningServer
from tests.server.test_stores import HERE, stepped
from tools.postgres import postgres, programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(programs() is None, reason="PostgreSQL is not installed (Debian: apt-get install postgresql)"),
]
MAX_CONNECTIONS = 500


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        yield found


def test_workers_follow_each_other(url: str) -> None:
    here, there, alone = Sessions(open_store(url)), Sessions(open_store(url)), Sessions(open_store("memory"))
    for sessions in (here, alone):
        sessions.create("static_workload", 3, "s", None, HERE)
    for sessions in (here, there, there, here, there, here):
        assert stepped(sessions) == stepped(alone)
    for sessions in (here, there, alone):
        sessions.store.close()


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
    alone = Sessions(open_store("memory"))
    session = alone.create("static_workload", 1, "s", None, HERE)
    changes, expected = ServeAction(batch_cap=96).changes(), []
    for _ in played:
        with alone.step(session, changes, None, HERE).held.use() as episode:
            expected.append(episode.reward)
    assert played == expected
    alone.store.close()


def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="LLMSERVE_STORE"):
        open_store("postgresql://nobody@127.0.0.1:1/none")
