"""GRPO through the environment: graded rewards from parallel sessions, and a tiny model that learns."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

pytest.importorskip("trl", reason="needs trl: pip install trl transformers datasets")

from examples.trl_grpo import ATTEMPTS, Moment, Sessions, main, make_dataset, moments_of, rewards_of
from tests.server.running import RunningServer

# The libraries of the example warn about themselves.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
GOOD = {"batch_cap": 128, "kv_budget_fraction": 0.3}


def answers(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_answers_are_graded_by_format_validity_and_what_the_windows_pay(tmp_path: Path) -> None:
    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server, ExitStack() as stack:
        sessions = Sessions(server.url, 3, stack)
        moment = moments_of("static_workload", [1_000_000])[0]
        texts = answers(
            f"I think ```json\n{json.dumps(GOOD)}\n```", '{"batch_cap": 1}', '{"batch_cap": 9, "x": 1}', "no"
        )
        columns: dict[str, Any] = {
            "task_id": [moment.task_id] * 4,
            "seed": [moment.seed] * 4,
            "step": [moment.step] * 4,
        }
        formats, validity, paid = (part(completions=texts, **columns) for part in rewards_of(sessions))
    assert formats == [1.0, 1.0, 1.0, 0.0]
    assert validity == [1.0, 1.0, 0.5, 0.0]
    assert paid[0] > paid[1] > paid[2] == paid[3] == 0.0


def test_sessions_side_by_side_pay_what_one_alone_does(tmp_path: Path) -> None:
    moments = [Moment("bursty_workload", seed, 10) for seed in range(1_000_000, 1_000_006)]
    actions = [GOOD] * len(moments)
    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server, ExitStack() as stack:
        together = Sessions(server.url, 4, stack).pay(moments, actions)
        alone = Sessions(server.url, 1, stack).pay(moments, actions)
        prompts = make_dataset(Sessions(server.url, 2, stack), moments)["prompt"]
    assert together == alone
    assert len({prompt[1]["content"] for prompt in prompts}) == len(moments)


def test_work_is_begun_again_when_its_connection_was_closed(tmp_path: Path) -> None:
    broken: list[str] = []

    def work(env: Any, times: int) -> int:
        if len(broken) < times:
            broken.append("once")
            raise ConnectionClosedError(None, None)
        return len(broken)

    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server, ExitStack() as stack:
        sessions = Sessions(server.url, 1, stack)
        assert sessions.with_session(work, ATTEMPTS - 1) == ATTEMPTS - 1
        broken.clear()
        with pytest.raises(ConnectionClosedError):
            sessions.with_session(work, ATTEMPTS)
        moment = Moment("static_workload", 1_000_000, 3)
        assert sessions.pay([moment], [GOOD])[0] > 0.0


def test_a_tiny_model_learns_and_is_saved(tmp_path: Path) -> None:
    with RunningServer(f"sqlite:///{tmp_path / 'sessions.db'}") as server:
        options = ["--tiny", "--steps", "25", "--prompts", "8", "--prompts-per-step", "2", "--max-answer-tokens", "12"]
        where = ["--url", server.url, "--task", "static_workload", "--output", str(tmp_path / "run")]
        found = main([*where, *options])
    rewards = [entry["reward"] for entry in found["history"] if "reward" in entry]
    assert sum(rewards[-5:]) > sum(rewards[:5])
    assert found["after"] > found["before"]
    assert (Path(found["model"]) / "model.safetensors").is_file()
