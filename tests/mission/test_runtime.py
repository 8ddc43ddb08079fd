"""The HTTP surface: every path with the fields that were asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from llmserve_env.server.application import create_app
from llmserve_env.server.settings import Settings
from llmserve_env.tasks.catalog import BENCHMARK
from tests.mission.asked import asked
from tests.server.conftest import settings

Call = Callable[..., dict[str, Any]]


@asked("`GET /health` {status, active_sessions, uptime}", "these fields; uptime as `uptime_s` and `uptime_seconds`")
def test_health_has_status_sessions_and_uptime(answer: Call) -> None:
    health = answer("/health")
    assert {"status", "active_sessions", "uptime_seconds"} <= set(health)
    assert health["uptime_s"] == health["uptime_seconds"]


@asked(
    "`POST /reset` {task_id, seed, config} → session_id, observation, episode_length",
    "the same; the seed is 42 if left out",
)
def test_reset_answers_session_observation_and_length_and_has_seed_42_by_default(answer: Call) -> None:
    first, second = answer("/reset", {"task_id": 1}), answer("/reset", {"task_id": 1, "seed": 42})
    assert first["observation"] == second["observation"]
    assert (first["episode_length"], answer("/state")["seed"]) == (200, 42)
    drawn = [answer("/reset", {"task_id": 1, "seed": None}) and answer("/state")["seed"] for _ in range(2)]
    assert drawn[0] != drawn[1]


@asked(
    "`POST /step` {session_id, action} → observation, reward, done, info",
    "the same; `info` has timestep, metrics and workload",
)
def test_step_answers_observation_reward_done_and_info(answer: Call) -> None:
    session = answer("/reset", {"task_id": 3})["session_id"]
    for timestep in (1, 2, 3):
        stepped = answer("/step", {"session_id": session, "action": {"batch_size": 64, "kv_budget": 0.5}})
        assert {"observation", "reward", "done", "info"} <= set(stepped)
        assert {"metrics", "workload"} <= set(stepped["info"])
        assert stepped["info"]["timestep"] == timestep


@asked("`GET /state` (step count, cumulative reward, done, phase)", "the same; phase also as `workload_phase`")
def test_state_has_step_count_cumulative_reward_done_and_phase(answer: Call) -> None:
    answer("/reset", {"task_id": 2})
    rewards = [answer("/step", {"action": {}})["reward"] for _ in range(3)]
    state = answer("/state")
    assert (state["step_count"], state["done"], state["phase"]) == (3, False, state["workload_phase"])
    assert abs(state["cumulative_reward"] - sum(rewards)) < 1e-9


@asked("`GET /metadata` · `GET /schema`", "both, as OpenEnv defines them")
def test_metadata_and_schema_answer(answer: Call) -> None:
    assert answer("/metadata")["name"] == "llmserve_env"
    assert {"action", "observation"} <= set(answer("/schema"))


@asked("`GET /tasks` · `POST /grader`", "the tasks with `active_actions` by the plan's names; grades: see above")
def test_tasks_lists_the_active_actions(answer: Call) -> None:
    found = {task["id"]: task["active_actions"] for task in answer("/tasks")["tasks"]}
    assert set(found) >= set(BENCHMARK)
    assert set(found["bursty_workload"]) == {"batch_size", "kv_budget", "spec_length"}


@asked(
    "`GET /baseline` (deterministic; `?use_openai=true`)",
    "grades of the defaults and the heuristic; `scores` and `expected_range` by the plan's formula",
)
def test_baseline_is_deterministic_with_scores_and_expected_ranges(client: TestClient, answer: Call) -> None:
    first = answer("/baseline")
    assert first == answer("/baseline")
    assert set(first["scores"]) == set(first["expected_range"]) == set(BENCHMARK)
    for task, score in first["scores"].items():
        low, high = first["expected_range"][task]
        assert low <= score <= high
    assert client.get("/baseline", params={"task_id": 1, "use_openai": True}).status_code in (202, 403, 503)


@asked("`GET /info` (action/observation schema, reward weights)", "the same")
def test_info_has_schemas_and_reward_weights(answer: Call) -> None:
    info = answer("/info")
    assert {"action_schema", "observation_schema", "reward_weights"} <= set(info)
    assert set(info["reward_weights"]) >= set(BENCHMARK)


@asked("`GET /web` · `GET /demo` → `/web`", "the page, and a redirect to it")
def test_demo_leads_to_the_page(client: TestClient) -> None:
    assert client.get("/web").headers["content-type"].startswith("text/html")
    redirect = client.get("/demo", follow_redirects=False)
    assert (redirect.status_code // 100, redirect.headers["location"]) == (3, "/web")


@asked(
    "Thread-safe LRU of 50 sessions",
    "an LRU of 4,096 live sessions in front of a journal of 20,000 (both settings)",
    "a session that is dropped from memory is restored by replay instead of being lost",
)
def test_the_least_recently_used_session_leaves_the_memory_and_comes_back() -> None:
    with TestClient(create_app(settings(max_live_sessions=2))) as client:
        for name in "abc":
            client.post("/reset", json={"session_id": name})
            client.post("/step", json={"session_id": name, "action": {}})
        assert client.get("/health").json()["active_sessions"] == 2
        assert client.post("/step", json={"session_id": "a", "action": {}}).json()["info"]["timestep"] == 2


@asked("unknown session is a 404, stepping a finished episode is an error", "404, and 409 after the last step")
def test_an_unknown_session_is_404_and_a_finished_episode_takes_no_step(client: TestClient, answer: Call) -> None:
    assert client.post("/step", json={"session_id": "none", "action": {}}).status_code == 404
    answer("/reset", {"session_id": "s"})
    answer("/play", {"session_id": "s", "agent": "default_knobs", "steps": 200})
    assert client.post("/step", json={"session_id": "s", "action": {}}).status_code == 409


@asked(
    "CORS; rate limit (plan: 100 requests/min per IP, too low for training: make it a setting); request logging",
    "all three are settings: `LLMSERVE_CORS_ORIGINS`, `…_STEPS_PER_S` and similar, `…_LOG_REQUESTS`",
)
def test_cors_rate_limits_and_request_logging_are_settings() -> None:
    assert {"cors_origins", "steps_per_s", "requests_per_s", "log_requests"} <= set(Settings.model_fields)
    with TestClient(create_app(settings(requests_per_s=1))) as client:
        origin = {"Origin": "http://example.com"}
        assert client.get("/tasks", headers=origin).headers["access-control-allow-origin"] == "*"
        statuses = {client.get("/tasks").status_code for _ in range(20)}
    assert statuses == {200, 429}


@asked("A full reset → 200 steps → grade cycle in well under 60 s", "well under a second; the test allows 60")
def test_a_full_cycle_takes_well_under_a_minute(answer: Call) -> None:
    answer("/reset", {"task_id": 3})
    # The time of the process, which other programs on the machine do not lengthen.
    started_s = time.process_time()
    for _ in range(200):
        stepped = answer("/step", {"action": {}})
    assert stepped["done"] and 0.0 <= answer("/grader", {})["score"] <= 1.0
    assert time.process_time() - started_s < 60


@asked("working `reset()`, `step()`, `state()`, `/tasks`, `/grader`, `/baseline`", "all of them, and OpenEnv's /ws")
def test_a_socket_session_resets_steps_and_reports_its_state(client: TestClient) -> None:
    with client.websocket_connect("/ws") as socket:
        for message in ({"type": "reset", "data": {"seed": 1}}, {"type": "step", "data": {}}, {"type": "state"}):
            socket.send_json(message)
            found = socket.receive_json()
    assert found["data"]["step_count"] == 1
