"""The shipped policies: trained from a clean commit on the tasks as they are, and better than rules and constants."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmserve_env.agents.policy import GENERALIST, check_policy, load_policy, weights_folder
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.catalog import BENCHMARK, load_task

FOLDERS = [*BENCHMARK, GENERALIST]


def card_of(name: str) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((weights_folder() / name / "ppo.json").read_text(encoding="utf-8"))
    return card


@pytest.mark.parametrize("name", FOLDERS)
def test_a_policy_says_where_it_comes_from(name: str) -> None:
    card = card_of(name)
    assert card["command"].startswith("python train.py --task ")
    assert len(card["commit"]) == 12
    assert (weights_folder() / name / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_policy_fits_its_tasks(name: str) -> None:
    folder = weights_folder() / name
    policy = load_policy(folder)
    for task in card_of(name)["tasks"]:
        check_policy(policy, load_task(task), folder)


@pytest.mark.parametrize("name", BENCHMARK)
def test_returns_rise_while_training(name: str) -> None:
    returns = card_of(name)["curve"]["return"]
    tenth = max(len(returns) // 10, 1)
    assert sum(returns[-tenth:]) > sum(returns[:tenth])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bursty_workload", "adversarial_multitenant"])
def test_a_policy_beats_rules_and_the_best_constant_where_adapting_pays(name: str) -> None:
    task, seeds = load_task(name), list(SEED_RANGES["evaluation"][:4])
    ppo, tuned, heuristic = (
        sum(result_of(agent, episode).score for episode in play(make_agent(agent), task, seeds))
        for agent in ("ppo", "tuned", "heuristic")
    )
    assert ppo > max(tuned, heuristic)
