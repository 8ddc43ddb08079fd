"""Replies that no model should send, and servers that are none: an error, or an answer that counts as no decision."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from llmserve_env.agents.agent import view_of
from llmserve_env.agents.llm import LlmAgent, ModelCallError
from llmserve_env.tasks.catalog import load_task
from tests.agents.playing import batch_of, begin, rewards
from tests.agents.test_llm import ACTION, agent_of
from tests.openai_server import Whole, openai_server, tool_call

TASK = load_task("adversarial_multitenant")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (
            Whole("<html>Welcome</html>", "text/html"),
            "200 with '<html>Welcome</html>', which .* check that the base URL",
        ),
        (Whole("<html>Welcome</html>"), "200 with a body that is no JSON"),
        (Whole("[1]"), r"200 with \[1\]"),
        (Whole('data: {"error": {"message": "overloaded"}}\n\n', "text/event-stream"), "overloaded"),
        (Whole('{"error": {"message": "overloaded"}}'), "the error {'message': 'overloaded'}"),
    ],
)
def test_a_server_that_answers_with_something_else_ends_the_episode(reply: Whole, reason: str) -> None:
    with openai_server(lambda asked: reply) as server:
        agent = agent_of(server)
        with pytest.raises(ModelCallError, match=reason):
            rewards(agent, "static_workload", [1], steps=1)


@pytest.mark.parametrize(
    "reply",
    [
        Whole('{"choices": []}'),
        Whole('{"choices": null}'),
        Whole('{"choices": [{"index": 0}]}'),
        Whole('{"choices": [{"index": 0, "message": null}]}'),
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "assistant", "content": 7},
        {"role": "assistant", "content": None, "tool_calls": "none"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function"}]},
        tool_call("set_knobs", None),  # type: ignore[arg-type]
        tool_call("another_tool", json.dumps(ACTION)),
        '{"batch_cap": 96',
        '{"a":' * 50_000,
    ],
)
def test_a_reply_without_an_action_is_counted_and_changes_nothing(reply: Any) -> None:
    with openai_server(lambda asked: reply) as server:
        agent = agent_of(server)
        knobs = agent_knobs(agent)
    assert (agent.usage.calls, agent.usage.decisions, agent.usage.unparsable) == (1, 0, 1)
    assert np.array_equal(knobs, TASK.default_knobs)


def agent_knobs(agent: LlmAgent) -> Any:
    """What the agent chooses for the first window."""
    batch = batch_of("adversarial_multitenant", [3])
    begin(agent, batch, [3])
    return agent.act(view_of(batch, 0))[0]


def test_text_in_parts_is_read_as_one() -> None:
    parts = [{"type": "text", "text": '{"batch_'}, {"type": "text", "text": 'cap": 77}'}]
    with openai_server(lambda asked: {"role": "assistant", "content": parts}) as server:
        assert agent_knobs(agent_of(server))[0] == 77
