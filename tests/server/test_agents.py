"""Agents that play on the server, and the recording with which the page opens."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.heuristic import HeuristicAgent
from llmserve_env.agents.planner import PlannerAgent
from llmserve_env.agents.registry import AGENTS, make_agent
from llmserve_env.arrays import Array
from llmserve_env.evaluation.play import play
from llmserve_env.server.application import create_app
from llmserve_env.server.clients import Client
from llmserve_env.tasks.catalog import load_task
from tests.server.conftest import settings
from tools import record_opening

TASK = "bursty_workload"
TIMEOUT_S = 60.0


def test_every_agent_is_listed_in_words_with_the_reason_where_it_cannot_play(client: TestClient) -> None:
    listed = client.get("/agents", params={"task_id": "azure_code"}).json()
    assert [one["name"] for one in listed] == list(AGENTS)
    assert all(one["title"] and one["does"] and one["sees"] for one in listed)
    assert all(one["is_available"] == (one["reason"] == "") for one in listed)
    absent = {one["name"]: one["reason"] for one in listed if not one["is_available"]}
    assert "train.py" in absent["ppo"]
    assert "python inference.py" in absent["llm"]


def test_an_agent_without_sound_files_hides_no_other_and_shows_no_path(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LLMSERVE_WEIGHTS", str(tmp_path))
    session = client.post("/reset", json={"task_id": TASK, "seed": 7}).json()["session_id"]
    for card in (None, "{"):
        if card is not None:
            (tmp_path / TASK).mkdir()
            (tmp_path / TASK / "ppo.json").write_text(card, encoding="utf-8")
            (tmp_path / TASK / "ppo.safetensors").write_bytes(b"garbage")
        listed = client.get("/agents", params={"task_id": TASK})
        refused = client.post("/play", json={"session_id": session, "agent": "ppo"})
        assert (listed.status_code, refused.status_code) == (200, 503)
        assert {"heuristic", "tuned"} <= {one["name"] for one in listed.json() if one["is_available"]}
        assert str(tmp_path.parent) not in listed.text + refused.text
    assert f"{tmp_path / TASK / 'ppo.json'}: is not the card of a policy" in caplog.text


def test_an_agent_whose_caller_has_been_refused_plays_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, seen = threading.Event(), list[int]()
    act = HeuristicAgent.act

    def slowly(agent: HeuristicAgent, view: AgentView) -> Array:
        seen.append(view.step)
        assert answered.wait(TIMEOUT_S)
        return act(agent, view)

    with TestClient(create_app(settings(expensive_timeout_s=0.2, expensive_workers=1))) as client:
        client.post("/reset", json={"task_id": TASK, "seed": 7}).raise_for_status()
        monkeypatch.setattr(HeuristicAgent, "act", slowly)
        assert client.post("/play", json={"agent": "heuristic", "steps": 50}).status_code == 503
        answered.set()
        while client.app.state.service._slow._running:  # type: ignore[attr-defined]
            client.get("/health")
    assert seen == [0]


@pytest.mark.parametrize("agent", ["ppo", "planner"])
def test_an_agent_plays_here_as_it_does_in_process_even_if_it_joins_late(client: TestClient, agent: str) -> None:
    session = client.post("/reset", json={"task_id": TASK, "seed": 7}).json()["session_id"]
    first = client.post("/play", json={"session_id": session, "agent": agent, "steps": 3}).json()["steps"]
    # Another agent's turn makes the first one rebuild what it knows.
    client.post("/play", json={"session_id": session, "agent": "heuristic", "steps": 1}).raise_for_status()
    client.post("/play", json={"session_id": session, "agent": agent, "steps": 2}).raise_for_status()
    alone = play(make_agent(agent), load_task(TASK), [7])[0].trajectory.terms["reward"]
    assert [one["reward"] for one in first] == alone[:3].tolist()


def test_an_agent_keeps_what_it_knows_and_none_of_its_copies(client: TestClient) -> None:
    sessions = client.app.state.service.sessions  # type: ignore[attr-defined]
    rewards = []
    for calls, steps in ((1, 4), (4, 1)):
        name = client.post("/reset", json={"task_id": TASK, "seed": 7}).json()["session_id"]
        body = {"session_id": name, "agent": "planner", "steps": steps}
        rewards.append([one["reward"] for _ in range(calls) for one in client.post("/play", json=body).json()["steps"]])
        agent = sessions.directory.find(name, Client("testclient")).agents["planner"]
        assert not agent.is_attached
        assert sessions.memory.lent_bytes == 0
    assert rewards[0] == rewards[1]


def test_the_copies_of_an_agent_take_their_memory_from_the_episodes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = client.app.state.service  # type: ignore[attr-defined]
    names = [client.post("/reset", json={"task_id": TASK, "seed": seed}).json()["session_id"] for seed in range(6)]
    size = service.memory.num_bytes // len(names)
    seen: list[tuple[int, int]] = []
    act = PlannerAgent.act

    def watched(agent: PlannerAgent, view: AgentView) -> Array:
        seen.append((service.memory.lent_bytes, service.memory.num_packed))
        return act(agent, view)

    monkeypatch.setattr(PlannerAgent, "act", watched)
    service.memory.budget_bytes = 24 * size
    client.post("/play", json={"session_id": names[0], "agent": "planner"}).raise_for_status()
    [(lent, packed)] = seen
    assert lent > 10 * size
    assert packed == len(names) - 1


def test_an_agent_that_plays_elsewhere_is_refused_by_name(client: TestClient) -> None:
    session = client.post("/reset", json={"task_id": TASK, "seed": 7}).json()["session_id"]
    refused = client.post("/play", json={"session_id": session, "agent": "llm"})
    assert refused.status_code == 422
    assert "'llm'" in refused.text


def test_the_page_opens_with_what_the_simulator_really_does() -> None:
    shipped = json.loads(record_opening.OUTPUT.read_text(encoding="utf-8"))
    assert shipped == json.loads(record_opening.text()), "run: python -m tools.record_opening"
