"""The reward: dense, in [-1, 1], with weights that a reset may replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmserve_env.env.kernels import REWARD_TERMS
from llmserve_env.tasks.catalog import load_task
from tests.mission.asked import asked

Call = Callable[..., dict[str, Any]]


@asked("Dense, every step, in [-1, 1]; throughput, SLO compliance, memory pressure and cost.", "the same, every window")
def test_every_step_has_a_reward_of_throughput_slo_memory_and_cost_in_range(answer: Call) -> None:
    answer("/reset", {"task_id": 3})
    for _ in range(40):
        stepped = answer("/step", {"action": {"batch_size": 8}})
        assert -1.0 <= stepped["reward"] <= 1.0
        assert {"throughput", "violations", "memory", "cost"} <= set(stepped["info"]["reward_terms"])


@asked(
    "with α 0.40, β 0.25, γ 0.25 / 0.30 / 0.35, δ 0.10 / 0.10 / 0.15 for tasks 1/2/3",
    "the same four weights, and a fifth for memory",
    "terms are shares of the window's traffic instead of tokens over a maximum, so that a quiet second counts as much "
    "as a busy one; memory pressure is a term of its own, as the README asks",
)
def test_the_weights_are_those_of_the_plan() -> None:
    weights = [load_task(number).reward.weights for number in (1, 2, 3)]
    assert [w.throughput for w in weights] == [0.40] * 3
    assert [w.latency for w in weights] == [0.25] * 3
    assert [w.violations for w in weights] == [0.25, 0.30, 0.35]
    assert [w.cost for w in weights] == [0.10, 0.10, 0.15]


@asked("weights can be overridden at reset (`config`)", "`config` takes alpha, beta, gamma, delta, or the terms' names")
def test_a_reset_replaces_weights_by_greek_letters(answer: Call) -> None:
    body = {"task_id": 1, "config": {"alpha": 1.0, "beta": 0.0, "gamma": 0.0, "delta": 0.0}}
    body["config"]["reward_weights"] = {"memory": 0.0}  # type: ignore[index]
    answer("/reset", body)
    for _ in range(5):
        stepped = answer("/step", {"action": {}})
        assert stepped["reward"] == pytest.approx(stepped["info"]["reward_terms"]["throughput"])
    assert set(stepped["info"]["reward_terms"]) == set(REWARD_TERMS)
