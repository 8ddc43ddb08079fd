"""GRPO through the environment, a few steps with a tiny random model on CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs trl: pip install trl transformers datasets")

from examples.trl_grpo import LOWEST_REWARD, main, make_dataset, make_reward
from llmserve_env import LLMServeEnv
from tests.agents.test_llm import ACTION
from tests.server.running import RunningServer

# The libraries of the example warn about themselves.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_answers_are_paid_by_the_environment_and_a_tiny_model_trains(tmp_path: Path) -> None:
    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server:
        with LLMServeEnv.from_url(server.url) as env:
            moment = make_dataset(env, "static_workload", 1)[0]
            answers = [[{"role": "assistant", "content": text}] for text in (json.dumps(ACTION), "no idea")]
            paid = make_reward(env)(
                completions=answers,
                task_id=[moment["task_id"]] * 2,
                seed=[moment["seed"]] * 2,
                step=[moment["step"]] * 2,
            )
        assert paid[0] > paid[1] == LOWEST_REWARD
        options = ["--tiny", "--steps", "2", "--prompts", "2", "--generations", "2", "--max-answer-tokens", "8"]
        history = main(["--url", server.url, "--task", "static_workload", "--output", str(tmp_path / "run"), *options])
    assert [entry["reward"] for entry in history if "reward" in entry] == [LOWEST_REWARD] * 2
