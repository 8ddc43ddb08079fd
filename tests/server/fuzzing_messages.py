"""Made-up messages for `/mcp` and the WebSockets, which no OpenAPI document describes; `fuzzing.py` has the command.

Most of them are almost right: known methods, types, knobs and options, with a wrong value here and there. The others
are any JSON, any text and any bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from starlette.websockets import WebSocketDisconnect

from llmserve_env.engine.knobs import KNOBS
from llmserve_env.server.application import create_app
from llmserve_env.server.sockets import INTERNAL_ERROR
from llmserve_env.tasks.catalog import BENCHMARK
from tests.server.conftest import settings as server_settings

ERRORS_METRIC = "llmserve_errors_total"
SESSION = "the session"
"""Stands for the id of an open session, which is known only when a message is sent."""
DOORS = ("POST /mcp", "WebSocket /mcp", "WebSocket /ws")
TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(["", SESSION, "\ud800", "\x00", "../x", *BENCHMARK])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from([10**400, -1, 2**63]) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
NAMES = ("type", "data", "jsonrpc", "id", "method", "params", "session_id", "name", "arguments", "action")
OPTIONS = ("seed", "episode_id", "task_id", "config", "split", "index")


@st.composite
def _mostly(draw: st.DrawFn, good: st.SearchStrategy[Any]) -> Any:
    """A value that fits, or one in four times any value."""
    return draw(good if draw(st.integers(0, 3)) else VALUES)


def _some_of(names: tuple[str, ...], values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names) | TEXT, values, max_size=4)


ARGUMENTS = _some_of(tuple(knob.name for knob in KNOBS), _mostly(st.integers(1, 64)))
RESETS = _some_of(OPTIONS, _mostly(st.integers(0, 9) | st.sampled_from(BENCHMARK)))
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "session_id": _mostly(st.just(SESSION)),
        "name": _mostly(st.sampled_from(["observe", "describe_task", "set_knobs"])),
        "arguments": _mostly(ARGUMENTS),
    },
)
METHODS = st.sampled_from(["openenv/session/create", "openenv/session/close", "tools/list", "tools/call", "initialize"])
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": _mostly(st.just("2.0")), "method": _mostly(METHODS), "id": _mostly(st.integers(0, 9))},
    optional={"params": _mostly(PARAMS)},
)
KINDS = st.sampled_from(["state", "close", "step", "reset", "mcp"])
MESSAGES = st.one_of(
    st.fixed_dictionaries({"type": st.just("step"), "data": ARGUMENTS}),
    st.fixed_dictionaries({"type": st.just("reset"), "data": RESETS}),
    st.fixed_dictionaries({"type": st.just("mcp"), "data": REQUESTS}),
    st.fixed_dictionaries({"type": _mostly(KINDS)}),
    st.fixed_dictionaries({"type": KINDS, "data": VALUES}),
)
ANYTHING = _some_of(NAMES, VALUES) | VALUES


@st.composite
def _text(draw: st.DrawFn, meant: st.SearchStrategy[Any]) -> str:
    """What is meant for this door, or one in four times anything."""
    if draw(st.integers(0, 3)):
        return json.dumps(draw(meant))
    return draw(st.text() | ANYTHING.map(json.dumps))


def _quiet(cases: int) -> settings:
    return settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


def fuzz_messages(door: str, cases: int) -> Counter[str]:
    """What was answered to so many made-up messages at one of the doors."""
    with TestClient(create_app(server_settings(max_live_sessions=8)), raise_server_exceptions=False) as client:
        kind, path = door.split()
        found = _fuzz_requests(client, cases) if kind == "POST" else _fuzz_socket(client, path, cases)
        counted = [line for line in client.get("/metrics").text.splitlines() if line.startswith(ERRORS_METRIC)]
    assert counted == [f"{ERRORS_METRIC} 0.0"], "the server met an error that it did not expect"
    return found


class Sessions:
    """The last session that `/mcp` has made, put where a case names one."""

    def __init__(self) -> None:
        self._last = "none"

    def fill(self, text: str) -> str:
        return text.replace(json.dumps(SESSION), json.dumps(self._last))

    def learn(self, answer: Any) -> None:
        result = answer.get("result") if isinstance(answer, dict) else None
        if isinstance(result, dict) and isinstance(result.get("session_id"), str):
            self._last = result["session_id"]


def _fuzz_requests(client: TestClient, cases: int) -> Counter[str]:
    answered: Counter[str] = Counter()
    sessions = Sessions()

    @_quiet(cases)
    @given(body=_text(REQUESTS) | st.binary(max_size=60))
    def ask(body: str | bytes) -> None:
        content = body if isinstance(body, bytes) else sessions.fill(body).encode()
        answer = client.post("/mcp", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 200, f"{answer.status_code} to {content!r}"
        said = answer.json()
        sessions.learn(said)
        assert ("result" in said) != ("error" in said), f"{said} to {content!r}"
        answered["results" if "result" in said else "refusals"] += 1

    ask()
    return answered


def _fuzz_socket(client: TestClient, path: str, cases: int) -> Counter[str]:
    answered: Counter[str] = Counter()
    sessions = Sessions()
    with SocketAgain(client, path) as socket:

        @_quiet(cases)
        @given(text=_text(MESSAGES if path == "/ws" else REQUESTS))
        def say(text: str) -> None:
            answer = socket.say(sessions.fill(text))
            assert INTERNAL_ERROR not in answer, text
            said = json.loads(answer) if answer else {}
            sessions.learn(said.get("data", said))
            kind = said.get("type", "ended" if not answer else "error" if "error" in said else "result")
            answered[f"{kind}s" if answer else "ended"] += 1

        say()
    return answered


class SocketAgain:
    """A WebSocket that is opened again when the server has closed it."""

    def __init__(self, client: TestClient, path: str) -> None:
        self._open: Callable[[], Any] = lambda: client.websocket_connect(path)
        self._socket: Any = None

    def say(self, text: str) -> str:
        """The answer; empty if there is none because the connection has ended."""
        if self._socket is None:
            self._socket = self._open().__enter__()
        try:
            self._socket.send_text(text)
            return str(self._socket.receive_text())
        except WebSocketDisconnect:
            self._end()
            return ""

    def __enter__(self) -> SocketAgain:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.__exit__(None, None, None)
        self._socket = None
