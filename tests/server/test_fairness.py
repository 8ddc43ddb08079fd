"""What one client's work costs others: nothing but the processor's time, over HTTP and over WebSockets."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI

from llmserve_env.env.episode import Episode
from llmserve_env.server.application import create_app
from tests.server.conftest import settings
from tests.server.test_owners import Visitor, reset, step, visitors_of

GREEDY, HONEST = "192.0.2.1", "192.0.2.2"
SLOW = 4_000_000_000
"""The seed of episodes whose resets take as long as the test lets them."""
TIMEOUT_S = 60.0
MANY = 40
"""More than there are threads of any kind."""


@contextmanager
def slow_resets(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Resets with the slow seed wait for the event, which comes in the end in any case."""
    let_go, at_once = threading.Event(), Episode.reset

    def when_let(episode: Episode, seed: int) -> None:
        assert seed != SLOW or let_go.wait(TIMEOUT_S)
        at_once(episode, seed)

    with monkeypatch.context() as patched:
        patched.setattr(Episode, "reset", when_let)
        try:
            yield let_go
        finally:
            let_go.set()


def done_in_time(work: Callable[[], object]) -> bool:
    """Whether the work ends although others' work does not."""
    working = threading.Thread(target=work, daemon=True)
    working.start()
    working.join(TIMEOUT_S / 2)
    return not working.is_alive()


def test_slow_resets_over_websockets_leave_threads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with visitors_of(create_app(settings())) as visitor, ExitStack() as stack:
        greedy = [stack.enter_context(visitor(GREEDY).websocket_connect("/ws")) for _ in range(MANY)]
        honest = stack.enter_context(visitor(HONEST).websocket_connect("/ws"))

        def ask(socket: Any, seed: int) -> None:
            socket.send_json({"type": "reset", "data": {"seed": seed}})

        def play() -> None:
            ask(honest, 1)
            assert honest.receive_json()["type"] == "observation"

        with slow_resets(monkeypatch):
            for socket in greedy:
                ask(socket, SLOW)
            assert done_in_time(play)
        assert [socket.receive_json()["type"] for socket in greedy] == ["observation"] * MANY


def dormant(app: FastAPI, count: int, steps: int, **asked: Any) -> list[str]:
    """Sessions of the greedy client in the store of an app that has ended."""
    with visitors_of(app) as visitor:
        client = visitor(GREEDY, forgetful=True)
        names = [reset(client, **asked) for _ in range(count)]
        for name, _ in itertools.product(names, range(steps)):
            assert step(client, session_id=name)[0] == 200
    return names


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'sessions.db'}"


def states(visitor: Visitor, pool: ThreadPoolExecutor, names: list[str]) -> Iterator[int]:
    """Statuses of calls for the states of sessions, all at once."""
    return pool.map(lambda name: visitor(GREEDY).get("/state", params={"session_id": name}).json()["step_count"], names)


def test_replays_of_one_client_leave_threads_to_others(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = dormant(create_app(settings(store=path)), MANY, 1, seed=SLOW)
    with visitors_of(create_app(settings(store=path))) as visitor, ThreadPoolExecutor(MANY) as pool:
        honest = visitor(HONEST)
        reset(honest)

        def play() -> None:
            assert step(honest, session_id=reset(honest))[0] == 200
            assert honest.get("/state").json()["step_count"] == 1

        with slow_resets(monkeypatch):
            counts = states(visitor, pool, names)
            assert done_in_time(play)
        assert list(counts) == [1] * MANY


def test_journals_are_replayed_one_at_a_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = dormant(create_app(settings(store=path)), count=8, steps=20)
    order: list[int] = []
    at_once = Episode.step

    def noted(episode: Episode, knobs: np.ndarray) -> None:
        order.append(id(episode))
        time.sleep(0)  # so that another thread could step in
        at_once(episode, knobs)

    with visitors_of(create_app(settings(store=path))) as visitor, ThreadPoolExecutor(len(names)) as pool:
        reset(visitor(HONEST))
        monkeypatch.setattr(Episode, "step", noted)
        assert list(states(visitor, pool, names)) == [20] * len(names)
    assert len(list(itertools.groupby(order))) == len(names)
