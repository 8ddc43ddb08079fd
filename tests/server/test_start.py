"""The start: a server answers before it is loaded and before it is warm, and nothing fails in the meantime."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from llmserve_env.errors import ConfigError
from llmserve_env.server import service
from llmserve_env.server.application import create_app
from llmserve_env.server.entrance import Entrance
from llmserve_env.server.schemas import HealthResponse
from tests.server.conftest import settings

HEAVY = ("fastapi", "gradio", "numba", "openenv", "pydantic")
TIMEOUT_S = 60
OTHERS = 50
"""Requests that are answered while others wait."""


class Call(threading.Thread):
    """A request in a thread, because its answer may have to wait."""

    def __init__(self, client: TestClient, method: str, path: str, **options: Any) -> None:
        super().__init__(daemon=True)
        self._client, self._asked, self._options = client, (method, path), options
        self.status: int | None = None
        self.start()

    def run(self) -> None:
        self.status = self._client.request(*self._asked, **self._options).status_code

    def answer(self) -> int | None:
        """The status, once it is there."""
        self.join(TIMEOUT_S)
        return self.status


def small_application() -> Starlette:
    return Starlette(routes=[Route("/step", lambda _request: PlainTextResponse("stepped"), methods=["POST"])])


def test_the_entrance_answers_while_the_application_loads() -> None:
    may_load = threading.Event()

    def load() -> Starlette:
        may_load.wait(TIMEOUT_S)
        return small_application()

    with TestClient(Entrance(load)) as client:
        health = client.get("/health").json()
        assert (health["status"], health["ready"], health["warming_up"]) == ("healthy", False, True)
        assert set(health) == set(HealthResponse.model_fields)
        assert all(client.get(path).status_code == 200 for path in ("/", "/web", "/web/static/main.js"))
        step = Call(client, "POST", "/step")
        assert step.status is None
        may_load.set()
        assert step.answer() == 200
        assert client.get("/health").status_code == 404


async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(await websocket.receive_text())
    await websocket.close()


def test_the_entrance_accepts_a_websocket_while_the_application_loads() -> None:
    may_load = threading.Event()

    def load() -> Starlette:
        may_load.wait(TIMEOUT_S)
        return Starlette(routes=[WebSocketRoute("/ws", echo)])

    with TestClient(Entrance(load)) as client, client.websocket_connect("/ws") as socket:
        socket.send_text("hello")
        may_load.set()
        assert socket.receive_text() == "hello"


def test_an_application_that_cannot_be_loaded_stops_the_server() -> None:
    def load() -> Starlette:
        raise ConfigError("LLMSERVE_STORE must be something else")

    stopped = threading.Event()
    entrance = Entrance(load)
    entrance.stop = stopped.set
    with TestClient(entrance):
        assert stopped.wait(TIMEOUT_S)
    assert entrance.has_failed


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(ConfigError("no such store"), False), (ValueError("too many values"), True)]
)
def test_a_bug_at_the_start_is_logged_with_its_traceback(
    error: Exception, has_traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def load() -> Starlette:
        raise error

    stopped = threading.Event()
    entrance = Entrance(load)
    entrance.stop = stopped.set
    with TestClient(entrance):
        assert stopped.wait(TIMEOUT_S)
    assert caplog.records[-1].getMessage() == f"the server cannot start: {error}"
    assert bool(caplog.records[-1].exc_info) is has_traceback


def test_an_error_at_the_end_is_not_one_of_the_start(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def broken(_application: Starlette) -> AsyncIterator[None]:
        yield
        raise RuntimeError("the store is gone")

    entrance = Entrance(lambda: Starlette(lifespan=broken))
    entrance.stop = lambda: None
    with TestClient(entrance) as client:
        assert client.get("/nothing").status_code == 404
    assert caplog.records[-1].getMessage() == "the server cannot stop cleanly: the store is gone"


def test_an_unknown_mode_of_openenv_is_refused_with_those_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENENV_MODE", "fast")
    with pytest.raises(ConfigError, match=r"OPENENV_MODE must be one of .*simulation.*; got 'fast'"):
        create_app(settings())


@pytest.fixture
def cold() -> Iterator[threading.Event]:
    """An event that lets the kernels be loaded."""
    event = threading.Event()
    yield event
    event.set()


def test_steps_wait_until_the_simulator_is_warm(cold: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(on_progress: Callable[[float], None]) -> None:
        on_progress(0.25)
        reported.set()
        cold.wait(TIMEOUT_S)

    reported = threading.Event()
    monkeypatch.setattr(service, "load_kernels", load)
    with TestClient(create_app(settings())) as client:
        assert reported.wait(TIMEOUT_S)
        health = client.get("/health").json()
        assert (health["warming_up"], health["progress"]) == (True, 0.25)
        assert [client.get(path).status_code for path in ("/web", "/tasks", "/metadata", "/schema")] == [200] * 4
        with client.websocket_connect("/ws") as socket:
            socket.send_json({"type": "step", "data": {}})
            reset = Call(client, "POST", "/reset", json={"seed": 1})
            assert {client.get("/tasks").status_code for _ in range(OTHERS)} == {200}
            assert reset.status is None
            cold.set()
            assert (reset.answer(), socket.receive_json()["type"]) == (200, "observation")
        assert client.get("/health").json()["ready"]


def test_a_simulator_that_cannot_be_warmed_does_not_keep_clients_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(on_progress: Callable[[float], None]) -> None:
        raise ConfigError("no compiler")

    monkeypatch.setattr(service, "load_kernels", fail)
    with TestClient(create_app(settings())) as client:
        assert client.post("/reset", json={"seed": 1}).status_code == 200


def test_listening_needs_no_heavy_import() -> None:
    program = "import sys, llmserve_env.server.app; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in HEAVY if name in found] == []
