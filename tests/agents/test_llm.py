"""The language model: the official client against a real HTTP server on loopback."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from llmserve_env.agents.llm import LlmAgent, LlmSettings, ModelCallError
from llmserve_env.agents.llm_prompt import action_schema, parse_action
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.errors import InvalidActionError, MissingCredentialError
from llmserve_env.tasks.catalog import load_task
from tests.agents.playing import batch_of, begin, rewards, view
from tests.openai_server import OpenAIServer, openai_server

TASK = load_task("adversarial_multitenant")
ACTION: dict[str, Any] = {
    "batch_cap": 128,
    "kv_budget_fraction": 0.6,
    "speculation_depth": 0,
    "quantization_tier": "INT8",
    "prefill_decode_split": False,
    "priority_routing": True,
}


def agent_of(server: OpenAIServer, **settings: Any) -> LlmAgent:
    given = {"model": "gpt-4.1-mini", "base_url": server.base_url, "api_key": "secret", **settings}
    return LlmAgent(LlmSettings(**given))


def test_answers_become_knobs_and_tokens_are_counted() -> None:
    with openai_server(lambda asked: json.dumps(ACTION)) as server:
        agent = agent_of(server)
        rewards(agent, "adversarial_multitenant", [3], steps=4)
    assert agent.usage.calls == len(server.requests) == 4
    assert agent.usage.unparsable == 0
    assert (agent.usage.prompt_tokens, agent.usage.completion_tokens) == (400, 80)
    assert agent.usage.cost_usd(agent.settings) == pytest.approx((400 * 0.4 + 80 * 1.6) / 1e6)
    assert set(server.keys) == {"Bearer secret"}


def test_the_model_is_asked_for_the_action_schema_at_temperature_zero() -> None:
    with openai_server(lambda asked: json.dumps(ACTION)) as server:
        rewards(agent_of(server), "adversarial_multitenant", [3], steps=3)
    asked = server.requests[-1]
    assert asked["path"] == "/v1/chat/completions"
    assert asked["temperature"] == 0.0
    assert asked["response_format"]["json_schema"]["schema"] == action_schema(TASK)
    system, user = (message["content"] for message in asked["messages"])
    assert "interactive: first token within 200 ms" in system
    windows = [json.loads(line)["window"] for line in user.splitlines() if line.startswith("{")]
    assert windows == [0, 1, 2]
    assert '"batch_cap": 128' in user.splitlines()[-2]


@pytest.mark.parametrize(
    "answer", ["I would raise the batch.", "[1, 2]", '{"batch_cap": 64}', "", '{"batch_cap": 9999}']
)
def test_an_answer_that_is_no_action_changes_nothing_and_is_counted(answer: str) -> None:
    with openai_server(lambda asked: answer) as server:
        agent = agent_of(server)
        batch = batch_of("static_workload", [1])
        begin(agent, batch, [1])
        chosen = agent.act(view("static_workload", step=0))
    assert chosen[0].tolist() == batch.task.default_knobs.tolist()
    assert agent.usage.unparsable == 1
    assert agent.usage.report(agent.settings)["problems"]


def test_between_questions_the_last_answer_stays() -> None:
    with openai_server(lambda asked: json.dumps(ACTION)) as server:
        paid = rewards(agent_of(server, decide_every=3), "bursty_workload", [3], steps=7)
    assert len(server.requests) == 3
    assert np.isfinite(paid).all()


def test_a_missing_key_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingCredentialError, match="OPENAI_API_KEY"):
        LlmAgent()


def test_settings_come_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_NAME", "some/model")
    monkeypatch.setenv("API_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("HF_TOKEN", "token")
    found = LlmSettings.from_environment(model=None)
    assert (found.model, found.base_url, found.api_key) == ("some/model", "http://127.0.0.1:9/v1", "token")
    assert LlmSettings.from_environment(model="other").model == "other"


def test_a_refused_call_is_an_error_not_an_action() -> None:
    with openai_server(lambda asked: 401) as server:
        agent = agent_of(server)
        with pytest.raises(ModelCallError, match="scripted failure"):
            rewards(agent, "static_workload", [1], steps=1)


def test_the_price_of_an_unlisted_model_is_not_invented() -> None:
    settings = LlmSettings(model="mystery", api_key="x")
    assert LlmAgent(settings).usage.cost_usd(settings) is None


def test_every_field_of_an_answer_is_required() -> None:
    assert mapping_from_knobs(parse_action(json.dumps(ACTION), TASK), TASK.action_knobs) == ACTION
    for name in ACTION:
        with pytest.raises(InvalidActionError, match="exactly the fields"):
            parse_action(json.dumps({key: value for key, value in ACTION.items() if key != name}), TASK)
