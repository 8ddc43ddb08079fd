"""A bug of the server: one line of the log with its traceback, one count, and an answer that gives nothing away."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

from llmserve_env.server.application import create_app
from llmserve_env.server.llmserve_environment import LLMServeEnvironment
from llmserve_env.server.sockets import INTERNAL_ERROR
from tests.server.conftest import settings

ONE_ERROR = "llmserve_errors_total 1.0"


def broken(_request: Any) -> Response:
    raise TypeError("a bug")


def broken_in_the_middle(_request: Any) -> Response:
    def pieces() -> Iterator[bytes]:
        yield b"first"
        raise TypeError("a bug")

    return StreamingResponse(pieces())


def logged_bugs(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("is_mounted", [False, True])
def test_a_bug_in_a_route_is_logged_and_counted_once(caplog: pytest.LogCaptureFixture, is_mounted: bool) -> None:
    app = create_app(settings())
    openenv = next(route.app for route in app.routes if isinstance(route, Mount) and not route.path)
    (openenv if is_mounted else app).router.routes.insert(0, Route("/broken", broken))  # type: ignore[attr-defined]
    with TestClient(app) as client:
        answer = client.get("/broken")
        assert (answer.status_code, "a bug" in answer.text) == (500, False)
        assert ONE_ERROR in client.get("/metrics").text
    assert [bool(record.exc_info) for record in logged_bugs(caplog)] == [True]


def test_a_bug_in_the_middle_of_an_answer_is_logged_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    app = create_app(settings())
    app.router.routes.insert(0, Route("/broken", broken_in_the_middle))
    with TestClient(app) as client:
        client.get("/broken")
        assert ONE_ERROR in client.get("/metrics").text
    assert [bool(record.exc_info) for record in logged_bugs(caplog)] == [True]


@pytest.mark.parametrize("kind", [TypeError, ValueError, IndexError])
def test_a_bug_behind_a_websocket_is_no_refusal(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken_state(_environment: LLMServeEnvironment) -> None:
        raise kind("a bug")

    monkeypatch.setattr(LLMServeEnvironment, "state_async", broken_state)
    with TestClient(create_app(settings())) as client, client.websocket_connect("/ws") as socket:
        socket.send_json({"type": "state"})
        assert socket.receive_json()["data"]["message"] == INTERNAL_ERROR
        socket.send_json({"type": "reset", "data": {"seed": 1}})
        assert socket.receive_json()["type"] == "observation"
        assert ONE_ERROR in client.get("/metrics").text
    assert [bool(record.exc_info) for record in logged_bugs(caplog)] == [True]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"type": "reset", "data": {"index": "1"}}, "index must be a whole number from 0 to"),
        ({"type": "reset", "data": {"index": 1.5}}, "index must be a whole number from 0 to"),
        ({"type": "reset", "data": {"self": 1}}, "unknown reset options: self"),
        ({"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": float("nan")}}}, "NaN"),
    ],
)
def test_a_mistake_of_the_client_is_no_bug(message: Any, words: str) -> None:
    with TestClient(create_app(settings())) as client, client.websocket_connect("/ws") as socket:
        socket.send_text(json.dumps(message))
        assert words in socket.receive_text()
        assert "llmserve_errors_total 0.0" in client.get("/metrics").text
