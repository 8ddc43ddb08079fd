"""Better control scores better: random, the default knobs, a tuned constant, adaptive control."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.adaptive_rule import Rule, RuleAgent
from benchmarks.adaptivity_data import found
from llmserve_env.agents.agent import Agent
from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.knobs import knobs_from_mapping
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.catalog import BENCHMARK, load_task

SEEDS = SEED_RANGES["evaluation"][100:106]


def mean_score(agent: Agent, task_id: str) -> float:
    return float(np.mean([result_of(agent.name, episode).score for episode in play(agent, load_task(task_id), SEEDS)]))


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_better_control_scores_better(task_id: str) -> None:
    kept = found()["tasks"][task_id]
    random, static = (mean_score(make_agent(name), task_id) for name in ("random", "default_knobs"))
    constant = mean_score(ConstantAgent(knobs_from_mapping(kept["constant"])), task_id)
    adaptive = mean_score(RuleAgent(Rule.from_mapping(kept["adaptive"]), foresight=True), task_id)
    assert max(random, static) < 0.5 * constant
    # At a cloud's prices rules gain nothing on the first two tasks and a few per cent on the third (docs/tasks.md).
    if task_id == "adversarial_multitenant":
        assert adaptive - constant >= 0.02 * (adaptive - random)
    else:
        assert adaptive == pytest.approx(constant, abs=0.03)
