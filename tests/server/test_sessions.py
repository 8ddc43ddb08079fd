"""HTTP sessions: stateful, isolated, repeatable, and bit-identical after a replay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from llmserve_env.engine.deployment import MAX_RUNNING
from llmserve_env.engine.knobs import KNOB, knobs_from_mapping, mapping_from_knobs
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.server.application import create_app
from llmserve_env.tasks.catalog import load_task
from tests.server.conftest import settings

ACTION = {"batch_cap": 96, "kv_budget_fraction": 0.8}
DEFAULTS = mapping_from_knobs(load_task("static_workload").default_knobs, load_task("static_workload").action_knobs)
STEPS = 200


def start(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.post("/reset", json={"task_id": "static_workload", "seed": 7, **asked})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def take(client: TestClient, session_id: str | None = None, action: Any = None, **more: Any) -> dict[str, Any]:
    named = {"session_id": session_id} if session_id else {}
    answer = client.post("/step", json={**named, "action": ACTION if action is None else action, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_three_steps_bring_the_count_to_three(client: TestClient) -> None:
    session = start(client)["session_id"]
    assert [take(client, session)["observation"]["step_index"] for _ in range(3)] == [1, 2, 3]
    state = client.get("/state", params={"session_id": session}).json()
    assert (state["step_count"], state["episode_id"], state["seed"]) == (3, session, 7)


def test_http_gives_what_the_library_gives(client: TestClient) -> None:
    session = start(client)["session_id"]
    episode = Episode("static_workload")
    episode.reset(7)
    for _ in range(5):
        answer = take(client, session)
        episode.step(knobs_from_mapping(ACTION))
        expected = observe(episode)
        assert (answer["reward"], answer["done"]) == (expected.pop("reward"), expected.pop("done"))
        assert answer["observation"] == expected


def test_an_empty_reset_works_and_a_body_may_be_left_out(client: TestClient) -> None:
    assert client.post("/reset", json={}).json()["observation"]["task_id"] == "static_workload"
    assert client.post("/reset").status_code == 200


def test_two_sessions_do_not_touch(client: TestClient) -> None:
    first, second = start(client)["session_id"], start(client, task_id=2)["session_id"]
    alone = [take(client, first)["reward"] for _ in range(3)]
    again = start(client)["session_id"]
    mixed = []
    for _ in range(3):
        take(client, second, {})
        mixed.append(take(client, again)["reward"])
    assert alone == mixed


def test_without_an_id_the_latest_session_of_the_client_is_meant(client: TestClient) -> None:
    start(client)
    latest = start(client, task_id="bursty_workload")
    assert take(client)["session_id"] == latest["session_id"]
    assert client.get("/state").json()["task_id"] == "bursty_workload"


def test_a_client_without_session_is_told_to_reset(client: TestClient) -> None:
    assert client.get("/state").json()["step_count"] == 0
    answer = client.post("/step", json={"action": {}})
    assert (answer.status_code, "reset" in answer.json()["detail"]) == (409, True)


def test_an_unknown_session_is_404(client: TestClient) -> None:
    assert client.post("/step", json={"session_id": "no such", "action": {}}).status_code == 404
    assert client.get("/state", params={"session_id": "no such"}).status_code == 404
    assert client.post("/grader", json={"session_id": "no such"}).status_code == 404


@pytest.mark.parametrize("name", ["nope", "/etc/task.yaml"])
def test_an_unknown_task_is_422_with_the_known_ids_and_a_path_is_no_task(client: TestClient, name: str) -> None:
    answer = client.post("/reset", json={"task_id": name})
    assert answer.status_code == 422
    assert "static_workload" in answer.text


def test_a_finished_episode_is_409(client: TestClient) -> None:
    session = start(client)["session_id"]
    answers = [take(client, session) for _ in range(STEPS)]
    assert [answer["done"] for answer in answers] == [False] * (STEPS - 1) + [True]
    answer = client.post("/step", json={"session_id": session, "action": {}})
    assert (answer.status_code, "ended" in answer.json()["detail"]) == (409, True)


@pytest.mark.parametrize(
    ("action", "field", "allowed"),
    [
        ({"batch_cap": 0}, "action.batch_cap", f"from 1 to {MAX_RUNNING}"),
        ({"batch_size": MAX_RUNNING + 1}, "action.batch_size", f"from 1 to {MAX_RUNNING}"),
        ({"kv_budget_fraction": 0.05}, "action.kv_budget_fraction", "from 0.1 to 1"),
        ({"speculation_depth": 1.5}, "action.speculation_depth", "whole number from 0 to 8"),
        ({"quantization_tier": "FP1"}, "action.quantization_tier", KNOB["quantization_tier"].allowed),
        ({"priority_routing": "yes"}, "action.priority_routing", "true or false"),
        ({"batchcap": 1}, "action.batchcap", "allowed: batch_cap"),
    ],
)
def test_a_bad_action_is_422_with_field_and_range(
    client: TestClient, action: dict[str, Any], field: str, allowed: str
) -> None:
    session = start(client)["session_id"]
    answer = client.post("/step", json={"session_id": session, "action": action})
    assert answer.status_code == 422
    problem = answer.json()["detail"][0]
    assert problem["field"] == field
    assert allowed in problem["msg"]
    assert client.get("/state", params={"session_id": session}).json()["step_count"] == 0


def test_a_repeated_request_gets_the_same_answer_instead_of_another_step(client: TestClient) -> None:
    session = start(client)["session_id"]
    first = take(client, session, step_index=1)
    assert take(client, session, step_index=1) == first
    assert client.get("/state", params={"session_id": session}).json()["step_count"] == 1
    for action, index in (({"batch_cap": 8}, 1), (ACTION, 3)):
        answer = client.post("/step", json={"session_id": session, "action": action, "step_index": index})
        assert answer.status_code == 409


def test_a_reset_under_the_same_id_starts_afresh(client: TestClient) -> None:
    first = start(client, episode_id="mine")
    take(client, "mine")
    again = start(client, episode_id="mine")
    assert (first["session_id"], again["session_id"]) == ("mine", "mine")
    assert take(client, "mine")["observation"]["step_index"] == 1


def test_reward_weights_can_be_set_at_reset(client: TestClient) -> None:
    start(client, episode_id="free", config={"reward_weights": {"latency": 0.0}})
    start(client, episode_id="plain")
    free, plain = take(client, "free"), take(client, "plain")
    assert free["reward"] > plain["reward"]
    assert free["observation"]["throughput_tps"] == plain["observation"]["throughput_tps"]
    assert client.post("/reset", json={"config": {"reward_weights": {"fun": 1}}}).status_code == 422
    assert client.post("/reset", json={"config": {"reward_weights": {"cost": -1}}}).status_code == 422


def test_a_session_pushed_out_of_memory_goes_on_as_if_it_had_stayed() -> None:
    with TestClient(create_app(settings(max_live_sessions=1))) as client:
        config = {"reward_weights": {"cost": 0.5}}
        start(client, episode_id="kept", config=config)
        expected = [take(client, "kept") for _ in range(6)]
        start(client, episode_id="pushed", config=config)
        for before in expected:
            start(client, episode_id="other")
            after = take(client, "pushed")
            assert (after["observation"], after["reward"]) == (before["observation"], before["reward"])


def test_fields_left_out_of_an_action_keep_what_was_asked_for_last(client: TestClient) -> None:
    parts = [{"batch_cap": 96}, {"kv_budget_fraction": 0.5}, {}, {"batch_cap": 8}]
    wholes: list[dict[str, Any]] = [
        {"batch_cap": 96},
        {"batch_cap": 96, "kv_budget_fraction": 0.5},
        {"batch_cap": 96, "kv_budget_fraction": 0.5},
        {"batch_cap": 8, "kv_budget_fraction": 0.5},
    ]
    in_parts, whole = start(client)["session_id"], start(client)["session_id"]
    for part, all_of_it in zip(parts, wholes, strict=True):
        found, expected = take(client, in_parts, part), take(client, whole, {**DEFAULTS, **all_of_it})
        assert (found["observation"], found["reward"]) == (expected["observation"], expected["reward"])
    logs = [client.get("/log", params={"session_id": name}).json()["actions"] for name in (in_parts, whole)]
    assert logs[0] == logs[1]


def test_a_log_of_partial_actions_is_graded_as_they_were_played(client: TestClient) -> None:
    session, actions = start(client)["session_id"], [{"batch_cap": 96}, {"kv_budget_fraction": 0.5}, {}]
    for action in actions:
        take(client, session, action)
    log = client.get("/log", params={"session_id": session}).json()
    whole, in_parts = (
        client.post("/grader", json={"episode_log": {**log, "actions": given}}) for given in (log["actions"], actions)
    )
    assert (whole.status_code, whole.json()) == (200, in_parts.json())


def test_a_repeated_partial_step_gets_the_same_answer(client: TestClient) -> None:
    session = start(client)["session_id"]
    take(client, session, {"batch_cap": 96}, step_index=1)
    first = take(client, session, {"kv_budget_fraction": 0.5}, step_index=2)
    assert take(client, session, {"kv_budget_fraction": 0.5}, step_index=2) == first


def test_a_full_store_makes_room_by_forgetting_the_oldest_sessions() -> None:
    with TestClient(create_app(settings(max_sessions=2))) as client:
        names = [start(client)["session_id"] for _ in range(4)]
        found = [client.get("/state", params={"session_id": name}).status_code for name in names]
        assert found == [404, 404, 200, 200]
        assert "llmserve_evicted_sessions_total 2.0" in client.get("/metrics").text


def test_every_figure_of_an_observation_is_finite(client: TestClient) -> None:
    session = start(client, task_id="adversarial_multitenant")
    for depth in range(5):
        answer = take(client, session["session_id"], {"speculation_depth": depth, "priority_routing": True})
        numbers = [v for v in answer["observation"].values() if isinstance(v, float | int)]
        assert np.isfinite(numbers).all()
        assert -1.0 <= answer["reward"] <= 1.0
