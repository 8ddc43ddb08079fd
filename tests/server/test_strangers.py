"""/mcp and OpenEnv's page: what they offer to strangers is checked and bounded."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from fastapi.testclient import TestClient

from llmserve_env.server import console
from llmserve_env.server.application import create_app
from llmserve_env.server.clients import Client
from llmserve_env.server.console import Console
from llmserve_env.server.limits import RateLimit
from llmserve_env.server.mcp import Mcp
from tests.server.conftest import settings

TIMEOUT_S = 30.0
CREATE = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/session/close", "params": {"session_id": [1]}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"session_id": {}}}',
        b'{"jsonrpc": "2.0", "id": [1], "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": NaN, "method": "tools/list"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": ["x"]}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}',
        b"[" * 50_000,
        b"[]",
        b"\xff",
        b"",
    ],
)
def test_a_request_that_is_none_is_answered_in_the_protocol(client: TestClient, body: bytes) -> None:
    answer = client.post("/mcp", content=body)
    assert (answer.status_code, answer.json()["jsonrpc"]) == (200, "2.0")
    assert answer.json()["error"]["code"] < 0


def test_the_sessions_of_a_client_are_few_and_leave_the_websockets_alone() -> None:
    limits = settings(max_mcp_sessions=8, max_mcp_sessions_per_client=3, max_websockets=2)
    with TestClient(create_app(limits)) as client:
        before = threading.active_count()
        answers = [client.post("/mcp", json=CREATE).json() for _ in range(20)]
        made = [answer["result"]["session_id"] for answer in answers if "result" in answer]
        assert len(made) == 3
        assert "3 sessions open already" in answers[-1]["error"]["message"]
        assert threading.active_count() - before <= 3 + 8
        with client.websocket_connect("/ws") as socket:
            socket.send_json({"type": "reset", "data": {"seed": 1}})
            assert socket.receive_json()["type"] == "observation"
        client.post("/mcp", json={**CREATE, "method": "openenv/session/close", "params": {"session_id": made[0]}})
        assert "result" in client.post("/mcp", json=CREATE).json()


def test_sessions_that_are_asked_for_at_once_are_as_few() -> None:
    async def scene() -> list[dict[str, Any]]:
        may_answer = asyncio.Event()

        async def openenv(_scope: Any, _receive: Any, send: Any) -> None:
            await may_answer.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b'{"result": {"session_id": "x"}}'})

        limits = settings(max_mcp_sessions=32, max_mcp_sessions_per_client=3)
        mcp = Mcp(openenv, limits, RateLimit(0.0, 1.0), lambda _name: True)
        asked = [asyncio.create_task(mcp.ask(CREATE, Client("192.0.2.1"))) for _ in range(24)]
        while sum(one.done() for one in asked) < 21:
            await asyncio.sleep(0)
        may_answer.set()
        return await asyncio.gather(*asked)

    answers = asyncio.run(asyncio.wait_for(scene(), TIMEOUT_S))
    assert sum("result" in answer for answer in answers) == 3


def test_a_websocket_that_names_no_session_is_one_of_our_own_and_takes_none_of_mcp() -> None:
    with TestClient(create_app(settings(max_mcp_sessions=2))) as client, ExitStack() as stack:
        for _ in range(4):
            socket = stack.enter_context(client.websocket_connect("/ws?session_id="))
            socket.send_json({"type": "reset", "data": {"seed": 1}})
            assert socket.receive_json()["type"] == "observation"
        assert "result" in client.post("/mcp", json=CREATE).json()


@pytest.mark.parametrize("path", ["/mcp", "/ws?session_id={}"])
def test_a_websocket_of_mcp_that_says_nothing_is_ended(path: str) -> None:
    with TestClient(create_app(settings(websocket_idle_s=0.01))) as client:
        name = client.post("/mcp", json=CREATE).json()["result"]["session_id"]
        with client.websocket_connect(path.format(name)) as socket:
            received: list[str] = []
            # In a thread, because what is not ended would be waited for without end.
            waiting = threading.Thread(target=lambda: received.append(socket.receive()["type"]), daemon=True)
            waiting.start()
            waiting.join(TIMEOUT_S)
            assert received == ["websocket.close"]


@pytest.fixture
def page() -> Any:
    with TestClient(create_app(settings(openenv_console=True))) as client:
        yield client
    # What Gradio leaves open is noticed here, and not in some later test.
    gc.collect()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/openenv/web/gradio_api/upload"),
        ("POST", "/openenv/web/gradio_api/upload?upload_id=x"),
        ("POST", "/openenv/web//gradio_api/upload"),
        ("GET", "/openenv/web/gradio_api/file=/etc/passwd"),
        ("GET", "/openenv/web/gradio_api/proxy=http://127.0.0.1:1/"),
        ("POST", "/openenv/web/gradio_api/run/predict"),
        ("POST", "/openenv/web/gradio_api/component_server"),
        ("POST", "/openenv/web/gradio_api/process_recording"),
        ("POST", "/openenv/web/gradio_api/vibe-edit"),
        ("POST", "/openenv/mcp"),
        ("POST", "/openenv/reset"),
    ],
)
def test_openenvs_page_takes_no_uploads_and_gives_no_files(page: TestClient, method: str, path: str) -> None:
    answer = page.request(method, path, files={"files": ("x", b"x" * 1_000)} if method == "POST" else None)
    assert answer.status_code == 404


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Gradio's own code
def test_openenvs_page_is_still_there(page: TestClient) -> None:
    assert page.get("/openenv/web/").status_code == 200
    assert page.get("/openenv/web/config").json()["components"]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of Gradio's own code
def test_openenvs_page_remembers_few_visitors_and_few_answers_that_they_do_not_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(console, "MAX_VISITORS", 5)
    app = create_app(settings(openenv_console=True))
    with TestClient(app) as client:
        functions = client.get("/openenv/web/config").json()["dependencies"]
        show = next(one["id"] for one in functions if one["api_name"] == "show_state")
        asked = {"data": [], "fn_index": show, "event_data": None}
        mounted = [getattr(route, "app", None) for route in app.routes]
        [page] = next(one for one in mounted if isinstance(one, Console)).pages
        for visitor in (*(f"visitor {number}" for number in range(12)), *["silent"] * 24):
            joined = client.post("/openenv/web/gradio_api/queue/join", json={**asked, "session_hash": visitor})
            assert joined.status_code == 200
        unread = page._queue.pending_messages_per_session
        while page._queue.event_ids_to_events:
            client.get("/health")
        console.forget_unread(page)
        assert len(unread) == 5 >= len(page.state_holder.session_data)
        assert unread["silent"].qsize() == console.MAX_UNREAD
        assert len(page._queue.pending_event_ids_session) <= 5
    del app, mounted, page, unread
    gc.collect()


def test_openenvs_web_interface_answers_at_its_standard_paths_and_for_each_visitor_alone(client: TestClient) -> None:
    begun = client.post("/web/reset", json={"task_id": "bursty_workload", "seed": 3}).json()
    assert (begun["observation"]["task_id"], begun["done"]) == ("bursty_workload", False)
    stepped = client.post("/web/step", json={"action": {"batch_cap": 96}}).json()
    assert (stepped["session_id"], stepped["observation"]["step_index"]) == (begun["session_id"], 1)
    assert client.get("/web/state").json()["step_count"] == 1
    metadata = client.get("/web/metadata").json()
    assert metadata["name"] == "llmserve_env"
    assert all(metadata[name] for name in ("description", "readme_content", "version"))
    assert client.post("/web/reset").status_code == 200
