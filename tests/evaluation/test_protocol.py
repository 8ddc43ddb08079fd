"""The line protocol of `inference.py`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.constant import DefaultKnobsAgent
from llmserve_env.agents.llm import LlmAgent
from llmserve_env.agents.llm_settings import LlmSettings
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.protocol import end_line, play_lines, start_line, step_line
from llmserve_env.graders import grade_episode
from llmserve_env.tasks.catalog import load_task
from tests.agents.test_llm import ACTION
from tests.openai_server import openai_server

GOLDEN = [
    "[START] task=static_workload env=llmserve_env model=gpt-4.1-mini",
    '[STEP] step=1 action={"batch_cap":64,"kv_budget_fraction":0.5,"speculation_depth":2,"quantization_tier":"INT4",'
    '"prefill_decode_split":true,"priority_routing":false} reward=-0.53 done=false error=null',
    '[STEP] step=2 action={"batch_cap":64,"kv_budget_fraction":0.5,"speculation_depth":2,"quantization_tier":"INT4",'
    '"prefill_decode_split":true,"priority_routing":false} reward=0.10 done=true error=unparsable answer: two lines',
    "[END] success=true steps=2 score=0.123 rewards=-0.53,0.10",
]


def test_golden_lines() -> None:
    action = {
        "batch_cap": 64,
        "kv_budget_fraction": 0.5,
        "speculation_depth": 2,
        "quantization_tier": "INT4",
        "prefill_decode_split": True,
        "priority_routing": False,
    }
    assert [
        start_line("static_workload", "gpt-4.1-mini"),
        step_line(1, action, -0.531, False, None),
        step_line(2, action, 0.1, True, "unparsable answer:\n two  lines"),
        end_line(True, [-0.531, 0.1], 0.1234),
    ] == GOLDEN


def test_an_episode_has_a_start_a_line_per_step_and_an_end() -> None:
    task = load_task("static_workload")
    lines = list(play_lines(DefaultKnobsAgent(), task, 42, "default_knobs"))
    assert [line.split(" ")[0] for line in lines] == ["[START]", *["[STEP]"] * task.steps, "[END]"]
    score = grade_episode(play(DefaultKnobsAgent(), task, [42])[0]).score
    assert f"success=true steps={task.steps} score={score:.3f} " in lines[-1]
    assert lines[-2].endswith("done=true error=null")


def answers_until(failing: int) -> Any:
    calls = iter(range(10_000))
    return lambda asked: json.dumps(ACTION) if next(calls) < failing else 401


def test_a_model_that_stops_answering_ends_the_episode_without_success() -> None:
    with openai_server(answers_until(3)) as server:
        agent = LlmAgent(LlmSettings(model="m", base_url=server.base_url, api_key="k"))
        lines = list(play_lines(agent, load_task("static_workload"), 42, "m"))
    assert re.fullmatch(r"\[END\] success=false steps=3 score=0\.000 rewards=(-?\d\.\d\d,?){3}", lines[-1])
    assert "error=m did not answer" in lines[-2]


def test_an_unparsable_answer_is_said_and_the_episode_goes_on() -> None:
    with openai_server(lambda asked: "no") as server:
        settings = LlmSettings(
            model="m", base_url=server.base_url, api_key="k", decide_every=100, max_unusable_share=1.0
        )
        agent = LlmAgent(settings)
        lines = list(play_lines(agent, load_task("static_workload"), 42, "m"))
    assert "error=unparsable answer" in lines[1]
    assert lines[2].endswith("error=null")
    assert lines[-1].startswith("[END] success=true")
    assert agent.usage.unparsable == 2


def test_an_episode_of_junk_ends_without_success_and_says_why() -> None:
    with openai_server(lambda asked: "no") as server:
        agent = LlmAgent(LlmSettings(model="m", base_url=server.base_url, api_key="k", decide_every=100))
        lines = list(play_lines(agent, load_task("static_workload"), 42, "m"))
    assert "there is no score" in lines[-2]
    assert lines[-1] == "[END] success=false steps=0 score=0.000 rewards="


def test_after_the_deadline_no_step_is_begun() -> None:
    lines = list(play_lines(DefaultKnobsAgent(), load_task("static_workload"), 42, "default_knobs", deadline_s=0.0))
    assert lines[1:] == ["[END] success=false steps=0 score=0.000 rewards="]


class BreaksAfterTwo(DefaultKnobsAgent):
    def act(self, view: AgentView) -> Any:
        if view.step == 2:
            raise RuntimeError("a mistake in the agent")
        return super().act(view)


def test_an_end_is_said_even_when_the_agent_breaks() -> None:
    lines = []
    with pytest.raises(RuntimeError, match="a mistake"):
        for line in play_lines(BreaksAfterTwo(), load_task("static_workload"), 42, "m"):
            lines.append(line)
    assert [line.split(" ")[0] for line in lines] == ["[START]", "[STEP]", "[STEP]", "[END]"]
    assert lines[-1].startswith("[END] success=false steps=2 score=0.000 rewards=")
