"""Real episodes over the environment's own HTTP server, on a small OpenAI server on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from llmserve_env.errors import MissingCredentialError
from llmserve_env.models import ServeObservation
from llmserve_env.server.application import create_app
from llmserve_env.server.settings import Settings
from tests.backends.real.playing import short_task
from tests.backends.real.streaming_server import KEY, MODEL, StreamingServer, streaming_server

ACTION = {"batch_cap": 16, "speculation_depth": 2}


@pytest.fixture
def engine() -> Iterator[StreamingServer]:
    with streaming_server() as server:
        yield server


@pytest.fixture
def real_mode(engine: StreamingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment variables of real mode, and a folder with a short task."""
    fields = short_task(steps=6).model_dump(mode="json", by_alias=True, exclude_none=True)
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(fields), encoding="utf-8")
    variables = {
        "LLMSERVE_TASKS": str(tmp_path),
        "OPENAI_API_KEY": KEY,
        "LLMSERVE_REAL_MODEL": MODEL,
        "LLMSERVE_REAL_BASE_URL": engine.base_url,
        "LLMSERVE_REAL_PRICE_IN_USD_PER_MILLION": "1",
        "LLMSERVE_REAL_PRICE_OUT_USD_PER_MILLION": "2",
        "LLMSERVE_REAL_MAX_RETRIES": "0",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def client(real_mode: None) -> Iterator[TestClient]:
    with TestClient(create_app(Settings(mode="real", openenv_console=False, log_requests=False))) as found:
        yield found


def reset(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/reset", json={"task_id": "short", "seed": 3, **fields})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def step(client: TestClient, session: dict[str, Any]) -> Any:
    return client.post("/step", json={"session_id": session["session_id"], "action": ACTION})


def test_an_episode_is_played_in_real_time_to_its_end(client: TestClient) -> None:
    session = reset(client)
    for number in range(6):
        answer = step(client, session).json()
        ServeObservation.model_validate({**answer["observation"], "reward": answer["reward"], "done": answer["done"]})
        assert answer["observation"]["metadata"]["mode"] == "real"
        assert answer["done"] is (number == 5)
    state = client.get("/state", params={"session_id": session["session_id"]}).json()
    assert state["done"] and state["step_count"] == 6
    assert step(client, session).status_code == 409


def test_a_real_log_says_so_and_is_not_graded_by_replay(client: TestClient) -> None:
    session = reset(client)
    step(client, session)
    log = client.get("/log", params={"session_id": session["session_id"]}).json()
    assert log["mode"] == "real"
    refused = client.post("/grader", json={"episode_log": log})
    assert refused.status_code == 422 and "real mode" in refused.json()["detail"]


def test_a_new_episode_ends_the_one_before_it(client: TestClient) -> None:
    first, second = reset(client), reset(client)
    assert step(client, second).status_code == 200
    ended = step(client, first)
    assert ended.status_code == 409 and "another episode" in ended.json()["detail"]


def test_a_refused_key_is_an_answer_with_the_reason(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    answer = client.post("/reset", json={"task_id": "short"})
    assert answer.status_code == 503 and "refuses the key" in answer.json()["detail"]


def test_a_dead_engine_is_an_answer_with_the_reason(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSERVE_REAL_BASE_URL", "http://127.0.0.1:9/v1")
    answer = client.post("/reset", json={"task_id": "short"})
    assert answer.status_code == 503 and "does not answer" in answer.json()["detail"]


def test_without_a_key_the_server_does_not_start(real_mode: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    app = create_app(Settings(mode="real", openenv_console=False))
    with pytest.raises(MissingCredentialError, match="OPENAI_API_KEY"), TestClient(app):
        pass


def test_an_agent_joins_a_real_episode_at_its_start_only(client: TestClient) -> None:
    session = reset(client)
    step(client, session)
    answer = client.post("/play", json={"session_id": session["session_id"], "agent": "default_knobs", "steps": 1})
    assert answer.status_code == 422 and "at its start only" in answer.json()["detail"]


def test_the_websocket_serves_real_episodes_too(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        socket.send_json({"type": "reset", "data": {"task_id": "short", "seed": 3}})
        assert socket.receive_json()["data"]["observation"]["metadata"]["mode"] == "real"
        socket.send_json({"type": "step", "data": ACTION})
        seen = socket.receive_json()["data"]
        assert seen["observation"]["metadata"]["real"]["unsupported_knobs"]["speculation_depth"]


def test_a_real_episode_is_graded_where_it_was_played_and_the_report_says_so(client: TestClient) -> None:
    session = reset(client, task_id="static_workload")
    assert step(client, session).status_code == 200
    graded = client.post("/grader", json={"session_id": session["session_id"]}).json()
    assert graded["mode"] == "real" and graded["steps"] == 1
    assert 0.0 <= graded["score"] <= 1.0 and "Truncated" in graded["feedback"]
