"""The language model: the official client against a real HTTP server on loopback."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.llm import LlmAgent, ModelCallError
from llmserve_env.agents.llm_answers import last_object, parse_action
from llmserve_env.agents.llm_prompt import action_schema, shown_metrics
from llmserve_env.agents.llm_settings import LlmSettings
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.env.episode import Episode
from llmserve_env.env.observation import observe
from llmserve_env.errors import AgentError, ConfigError, InvalidActionError, MissingCredentialError
from llmserve_env.evaluation.evaluate import evaluate
from llmserve_env.evaluation.report import usage_lines
from llmserve_env.tasks.catalog import load_task
from tests.agents.playing import batch_of, begin, rewards
from tests.openai_server import OpenAIServer, openai_server, tool_call

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
    assert agent.usage.calls_without_usage == 0
    assert set(server.keys) == {"Bearer secret"}


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        {"prompt_tokens": -100, "completion_tokens": 20},
        {"prompt_tokens": 100, "completion_tokens": 10**18},
        {"prompt_tokens": 100, "completion_tokens": 2.5},
        {"prompt_tokens": True, "completion_tokens": 20},
        {"prompt_tokens": "100", "completion_tokens": 20},
        {"prompt_tokens": 100},
    ],
)
def test_a_usage_that_cannot_be_true_costs_nothing_and_is_counted(usage: Any) -> None:
    with openai_server(lambda asked: "{}", usage) as server:
        options = {"llm": {"settings": agent_of(server, decide_every=100).settings}}
        results = evaluate(["llm"], [load_task("static_workload")], [1], options=options)
        agent = agent_of(server)
        rewards(agent, "static_workload", [1, 2], steps=1)
    report = agent.usage.report(agent.settings)
    assert (report["calls"], report["calls_without_usage"], report["decisions"]) == (2, 2, 2)
    assert (report["prompt_tokens"], report["completion_tokens"], report["cost_usd"]) == (0, 0, 0.0)
    assert usage_lines(results)[0].endswith("0 completion tokens, tokens of 2 calls unknown")


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
    assert "Change over these 3 windows: request_arrival_rate +" in user
    assert '"batch_cap": 128' in user.splitlines()[-2]
    assert "ms to the first token, 99th percentile" in system


@pytest.mark.parametrize(
    "answer", ["I would raise the batch.", "[1, 2]", "", '{"batch_cap": 9999}', '{"cap": 1}', '{"batch_cap": 64']
)
def test_an_answer_that_is_no_action_changes_nothing_and_is_counted(answer: str) -> None:
    with openai_server(lambda asked: answer) as server:
        agent = agent_of(server)
        batch = batch_of("static_workload", [1])
        begin(agent, batch, [1])
        chosen = agent.act(view_of(batch, 0))
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


FENCED = """I think about {"batch_cap": 8} first. The queue grows, so:
```json
{"batch_cap": 96, "quant_tier": "INT8"}
```
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"a": 1}', {"a": 1}),
        (FENCED, {"batch_cap": 96, "quant_tier": "INT8"}),
        ("<think>maybe {x}</think>{}", {}),
        ('{"a": {"b": 2}} done', {"a": {"b": 2}}),
        ("{'a': 1}", None),
        ("[1, 2]", None),
        ("{" * 5000, None),
        ('{"a":' * 5000, None),
        ('{"a": 1} and {"batch_cap": ' + "9" * 5_000 + "}", {"a": 1}),
    ],
)
def test_the_last_json_object_of_an_answer_counts(text: str, found: Any) -> None:
    assert last_object(text) == found


def test_knobs_that_an_answer_leaves_out_stay_in_force() -> None:
    current = TASK.knobs_from_mapping(ACTION)
    changed = mapping_from_knobs(parse_action('{"batch_cap": 96}', TASK, current), TASK.action_knobs)
    assert changed == {**ACTION, "batch_cap": 96}
    with pytest.raises(InvalidActionError, match="unknown field 'cap'"):
        parse_action('{"cap": 1}', TASK, current)


def test_reasoning_before_fenced_json_is_a_decision() -> None:
    with openai_server(lambda asked: FENCED) as server:
        agent = agent_of(server, answers="text")
        rewards(agent, "adversarial_multitenant", [3], steps=3)
    assert (agent.usage.decisions, agent.usage.unparsable) == (3, 0)
    assert "response_format" not in server.requests[0]
    assert '"quantization_tier": "INT8"' in server.requests[-1]["messages"][1]["content"]


def test_a_call_of_the_tool_is_a_decision() -> None:
    with openai_server(lambda asked: tool_call("set_knobs", '{"batch_cap": 48}')) as server:
        agent = agent_of(server, answers="tool")
        batch = batch_of("static_workload", [1])
        begin(agent, batch, [1])
        assert agent.act(view_of(batch, 0))[0][0] == 48.0
    asked = server.requests[0]
    assert asked["tools"][0]["function"]["name"] == asked["tool_choice"]["function"]["name"] == "set_knobs"
    assert asked["tools"][0]["function"]["parameters"]["required"] == []


def test_the_figures_shown_are_those_of_the_wire_from_the_first_window() -> None:
    with openai_server(lambda asked: "{}") as server:
        rewards(agent_of(server), "bursty_workload", [3], steps=2)
    episode = Episode("bursty_workload")
    episode.reset(3)
    for asked in server.requests:
        shown = json.loads([line for line in asked["messages"][1]["content"].splitlines() if line.startswith("{")][-1])
        wire = observe(episode)
        assert {name: shown[name] for name in shown_metrics(wire)} == shown_metrics(wire)
        episode.step(episode.task.default_knobs)
    first = json.loads(server.requests[0]["messages"][1]["content"].splitlines()[1])
    assert first["slo_compliance_rate"] == 1.0
    assert "reward" not in first


def test_too_many_unusable_answers_fail_the_episode_instead_of_scoring_other_knobs() -> None:
    with openai_server(lambda asked: "no idea") as server:
        options = {"llm": {"settings": agent_of(server, decide_every=20, max_unusable_share=0.3).settings}}
        with pytest.raises(AgentError, match=r"4 of 4 answers on static_workload were not actions; .* no score"):
            evaluate(["llm"], [load_task("static_workload")], [1], options=options)
    assert len(server.requests) == 4


def test_junk_below_the_share_is_counted_beside_the_decisions() -> None:
    answers = iter(['{"batch_cap": 96}', "hm", *['{"kv_budget_fraction": 0.3}'] * 8])
    with openai_server(lambda asked: next(answers)) as server:
        options = {"llm": {"settings": agent_of(server, decide_every=20).settings}}
        result = evaluate(["llm"], [load_task("static_workload")], [1], options=options)[0]
    assert result.usage["calls"] == 10
    assert (result.usage["decisions"], result.usage["unparsable_answers"]) == (9, 1)
    assert result.score > 0.5


def test_a_busy_server_is_asked_again() -> None:
    refusals = iter([429, 429])
    with openai_server(lambda asked: next(refusals, None) or "{}") as server:
        agent = agent_of(server)
        rewards(agent, "static_workload", [1], steps=1)
    assert (agent.usage.calls, len(server.requests)) == (1, 3)


def test_episodes_side_by_side_keep_their_own_counts() -> None:
    with openai_server(lambda asked: "{}") as server:
        agent = agent_of(server)
        rewards(agent, "static_workload", [1, 2, 3], steps=2)
    assert [counts["calls"] for counts in agent.episode_usage] == [2, 2, 2]
    assert agent.usage.calls == 6


@pytest.mark.parametrize(
    "wrong", [{"answers": "prose"}, {"max_unusable_share": 2.0}, {"history_windows": 0}, {"max_answer_tokens": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        LlmSettings(**wrong)
