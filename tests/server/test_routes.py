"""What the routes answer besides steps: information, grades, baselines, agents and pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fastapi.testclient import TestClient

from llmserve_env.engine.knobs import NAMES
from llmserve_env.server.errors import STATUS, UnknownSessionError, status_of
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.files import data_folder

ENDPOINTS = (
    "/health",
    "/metadata",
    "/schema",
    "/info",
    "/tasks",
    "/runtime",
    "/state",
    "/agents",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/docs/own_agents.md",
    "/web",
    "/web/",
    "/",
    "/demo",
    "/list_environments",
)


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_page_is_there(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


def test_health_counts_sessions(client: TestClient) -> None:
    client.post("/reset", json={})
    health = client.get("/health").json()
    assert (health["status"], health["active_sessions"], health["stored_sessions"]) == ("healthy", 1, 1)
    assert health["uptime_s"] >= 0


def test_tasks_say_what_a_client_needs(client: TestClient) -> None:
    answer = client.get("/tasks").json()
    found = {task["id"]: task for task in answer["tasks"]}
    assert list(found)[: len(BENCHMARK)] == list(BENCHMARK)
    static = found["static_workload"]
    assert static["active_knobs"] == list(load_task(1).knobs.active)
    assert set(static["active_knobs"]) | set(static["masked_knobs"]) == {
        knob.name for knob in load_task(1).action_knobs
    }
    assert all(task["episode_length"] == load_task(name).steps for name, task in found.items())
    assert set(answer["action_schema"]["properties"]) - {"metadata"} == set(NAMES)


def test_observations_follow_the_published_schema(client: TestClient) -> None:
    schema = client.get("/schema").json()["observation"]
    answers = [client.post("/reset", json={"task_id": 3, "seed": 1}).json()]
    answers += [client.post("/step", json={"action": {}}).json() for _ in range(3)]
    for answer in answers:
        observation = {**answer["observation"], "reward": answer["reward"], "done": answer["done"]}
        jsonschema.Draft202012Validator(schema).validate(observation)


def test_openapi_lists_our_routes_once_and_with_examples(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    assert document["info"]["version"].startswith("1.")
    schemas = document["components"]["schemas"]
    assert all(schemas[name]["examples"] for name in ("ResetRequest", "StepRequest", "GraderRequest"))
    assert set(document["paths"]["/step"]["post"]["responses"]) >= {"200", "404", "409", "422", "429"}
    operations = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert len(operations) == len(set(operations))


def test_a_log_can_be_taken_away_and_graded_again(client: TestClient) -> None:
    session = client.post("/reset", json={"seed": 5}).json()["session_id"]
    for _ in range(20):
        client.post("/step", json={"session_id": session, "action": {"batch_cap": 96}})
    log = client.get("/log", params={"session_id": session}).json()
    assert (len(log["actions"]), len(log["rewards"]), log["seed"]) == (20, 20, 5)
    by_session = client.post("/grader", json={"session_id": session})
    by_log = client.post("/grader", json={"episode_log": log})
    assert (by_session.status_code, by_log.status_code) == (200, 200)
    assert by_session.json() == by_log.json()
    assert 0.0 <= by_log.json()["score"] <= 1.0


def test_grading_refuses_what_it_cannot_trust(client: TestClient) -> None:
    log: dict[str, Any] = {"task_id": "static_workload", "task_version": 1, "environment_version": "1", "seed": 1}
    cases = [
        ({**log, "actions": [{"batch_cap": 0}]}, 422),
        ({**log, "actions": [{}] * 3_000}, 422),
        ({**log, "actions": [{}], "rewards": ["NaN"]}, 422),
        ({**log, "actions": [{}], "environment_version": "0"}, 409),
        ({**log, "actions": [{}], "task_id": "nope"}, 422),
        ({**log, "actions": [{}], "task_id": "../x.yaml"}, 422),
        ({**log, "actions": [{}], "metrics": []}, 422),
    ]
    assert [client.post("/grader", json={"episode_log": given}).status_code for given, _ in cases] == [
        status for _, status in cases
    ]
    both = {"session_id": "x", "episode_log": {**log, "actions": []}}
    assert client.post("/grader", json=both).status_code == 422


def test_the_baseline_is_the_same_every_time(client: TestClient) -> None:
    first = client.get("/baseline", params={"task_id": "static_workload"}).json()
    assert first == client.get("/baseline", params={"task_id": 1}).json()
    assert list(first["results"]) == ["static_workload"]
    assert {"default_knobs", "heuristic"} <= set(first["results"]["static_workload"])


def test_an_agent_plays_step_by_step_as_it_plays_at_once(client: TestClient) -> None:
    rewards: dict[str, list[float]] = {}
    for name, portions in (("whole", [30]), ("portions", [1, 9, 20])):
        client.post("/reset", json={"task_id": 2, "seed": 9, "session_id": name})
        rewards[name] = []
        for steps in portions:
            asked = {"session_id": name, "agent": "heuristic", "steps": steps}
            played = client.post("/play", json=asked).json()["steps"]
            rewards[name] += [step["reward"] for step in played]
    assert len(rewards["whole"]) == 30
    assert rewards["whole"] == rewards["portions"]


def test_an_agent_stops_at_the_end_of_the_episode(client: TestClient) -> None:
    client.post("/reset", json={"session_id": "s"})
    played = client.post("/play", json={"session_id": "s", "agent": "default_knobs", "steps": 200}).json()["steps"]
    assert (len(played), played[-1]["done"]) == (200, True)
    assert client.post("/play", json={"session_id": "s", "agent": "default_knobs"}).json()["steps"] == []


def test_an_unknown_agent_is_refused(client: TestClient) -> None:
    client.post("/reset", json={"session_id": "s"})
    answer = client.post("/play", json={"session_id": "s", "agent": "oracle"})
    assert (answer.status_code, "heuristic" in answer.json()["detail"]) == (422, True)


def test_the_task_api_lists_the_catalogue(client: TestClient) -> None:
    assert client.get("/llmserve_env/splits").json() == [{"name": "train", "type": "train"}]
    tasks = client.post("/llmserve_env/tasks", json={"split": "train"}).json()["tasks"]
    assert [task["task_id"] for task in tasks][: len(BENCHMARK)] == list(BENCHMARK)
    assert client.post("/llmserve_env/task", json={"split": "train", "index": 99}).status_code == 400


def test_operators_see_steps_and_requests(client: TestClient) -> None:
    client.post("/reset", json={})
    client.post("/step", json={"action": {}})
    text = client.get("/metrics").text
    assert "llmserve_ready 1.0" in text
    assert float(re.findall(r"^llmserve_store_bytes (\S+)$", text, re.MULTILINE)[0]) > 10_000
    assert 'llmserve_steps_total{task="static_workload"} 1.0' in text
    assert 'route="/step",status="200"} 1.0' in text


def test_every_error_has_a_status() -> None:
    assert all(400 <= status < 600 for status in STATUS.values())
    assert status_of(UnknownSessionError("x")) == 404


def test_one_bad_task_of_the_operator_hides_no_other_and_shows_no_path(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = (
        (data_folder() / "static_workload-v1.yaml")
        .read_text(encoding="utf-8")
        .replace("id: static_workload", "id: mine")
    )
    (tmp_path / "mine.yaml").write_text(good, encoding="utf-8")
    (tmp_path / "broken.yaml").write_text("id: broken\nid: twice\n", encoding="utf-8")
    monkeypatch.setenv("LLMSERVE_TASKS", str(tmp_path))
    assert [task["id"] for task in client.get("/tasks").json()["tasks"]] == [*BENCHMARK, "mine"]
    assert [client.get(path).status_code for path in ("/info", "/runtime")] == [200, 200]
    refused = client.post("/reset", json={"task_id": "broken"})
    assert (refused.status_code, "broken" in refused.text, str(tmp_path) in refused.text) == (422, True, False)
