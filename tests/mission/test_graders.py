"""Grades: the plan's formulas beside ours, by session or by a list of what /step answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.knobs import KNOB
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.play import play
from llmserve_env.graders import grade_episode
from llmserve_env.graders.references import references_of
from llmserve_env.tasks.catalog import load_task
from tests.mission.asked import asked

ROOT = Path(__file__).resolve().parents[2]
Call = Callable[..., dict[str, Any]]


def played(number: int, agent: str = "heuristic") -> PlayedEpisode:
    return play(make_agent(agent), load_task(number), [42])[0]


@asked(
    "In [0, 1], deterministic, same log → same score, with `score`, `breakdown` (a float per component) and "
    "human-readable `feedback`.",
    "our score in those fields, and the plan's score, breakdown and feedback in `plan`",
    "our score counts requests and cannot be raised by dropping them; the plan's score is reported with it",
)
def test_a_grade_has_score_breakdown_and_feedback_in_both_forms(answer: Call) -> None:
    answer("/reset", {"task_id": 2})
    for _ in range(25):
        answer("/step", {"action": {"batch_size": 64}})
    first, second = answer("/grader", {}), answer("/grader", {})
    assert first == second
    for grade in (first, first["plan"]):
        assert 0.0 <= grade["score"] <= 1.0
        assert grade["breakdown"] and all(isinstance(value, float) for value in grade["breakdown"].values())
        assert grade["feedback"].endswith(".")


@asked(
    "`/grader` grades the current completed episode or an explicit `episode_log`.",
    "a session, a log, or the list of everything that /step answered; logs are graded by replay",
)
@pytest.mark.parametrize("config", [{}, {"alpha": 0.9}])
def test_a_list_of_what_step_answered_is_graded_like_its_session(answer: Call, config: dict[str, float]) -> None:
    session = answer("/reset", {"task_id": 1, "seed": 7, "config": config})["session_id"]
    actions = [{"batch_size": 64 + step, "kv_budget": 0.5} for step in range(30)]
    answers = [answer("/step", {"session_id": session, "action": action}) for action in actions]
    by_log = answer("/grader", {"task_id": 1, "episode_log": answers})
    assert by_log == answer("/grader", {"session_id": session})
    assert (by_log["seed"], by_log["steps"]) == (7, 30)


def test_a_list_that_is_no_episode_is_refused_with_the_place(client: TestClient, answer: Call) -> None:
    answer("/reset", {"task_id": 1})
    log = [answer("/step", {"action": {}}) for _ in range(3)]
    other = json.loads(json.dumps(log))
    other[1]["info"]["seed"] = 9
    forged = json.loads(json.dumps(log))
    forged[0]["reward"] = 1.0
    cases = {
        "episode_log[0].info.timestep is 2": {"task_id": 1, "episode_log": log[1:]},
        "episode_log[1].info.timestep is 1": {"task_id": 1, "episode_log": [log[0], log[0]]},
        "episode_log[1] is of another episode": {"task_id": 1, "episode_log": other},
        "task_id is 2": {"task_id": 2, "episode_log": log},
        "claims a reward": {"task_id": 1, "episode_log": forged},
        "give the task_id": {"episode_log": []},
    }
    for message, body in cases.items():
        refused = client.post("/grader", json=body)
        assert refused.status_code == 422, message
        assert message in refused.text


@asked(
    "- 1: (mean tps − baseline tps) / (optimal tps − baseline tps), clipped",
    "`plan` of task 1; the two rates are measured here by `llmserve task calibrate`",
    "the plan's 2,800 and 8,200 tokens/s were estimates for other traffic",
)
def test_the_plans_score_of_task_1_is_throughput_between_baseline_and_optimum() -> None:
    episode = played(1)
    constants = references_of(episode.task)["plan"]
    tps = episode.trajectory.metrics["throughput_tps"].mean()
    expected = (tps - constants["baseline_tps"]) / (constants["optimal_tps"] - constants["baseline_tps"])
    plan = grade_episode(episode).plan
    assert plan is not None
    assert plan.score == pytest.approx(min(max(expected, 0.0), 1.0))


@asked("- 2: 0.5 · max(0, 1 − mean TTFT p50 / 300 ms) + 0.5 · memory", "`plan` of task 2")
def test_the_plans_score_of_task_2_is_half_ttft_and_half_memory() -> None:
    episode = played(2)
    metrics, plan = episode.trajectory.metrics, grade_episode(episode).plan
    ttft = max(0.0, 1.0 - metrics["ttft_p50_ms"].mean() / 300.0)
    memory = min(max(1.0 - (metrics["peak_memory_gb"].max() - 36.0) / 10.0, 0.0), 1.0)
    assert plan is not None
    assert plan.score == pytest.approx(0.5 * ttft + 0.5 * memory)


@asked(
    "- 3: 0.40 throughput/optimal + 0.30 SLO compliance + 0.20 max(0, 1 − cost/5) + 0.10 stability",
    "`plan` of task 3; a unit of cost is a fifth of what the defaults cost",
)
def test_the_plans_score_of_task_3_weighs_throughput_slo_cost_and_stability() -> None:
    episode = played(3)
    constants, plan = references_of(episode.task)["plan"], grade_episode(episode).plan
    trajectory, window = episode.trajectory, episode.trajectory.window
    assert plan is not None
    slo = window["met_by_class_tier"].sum() / window["judged_by_class"].sum()
    throughput = min(float(trajectory.metrics["throughput_tps"].mean()) / constants["optimal_tps"], 1.0)
    cost = max(0.0, 1.0 - episode.totals()["cost_usd"] / constants["baseline_cost_usd"])
    batch, kv = trajectory.knobs[:, 0], trajectory.knobs[:, 1]
    stability = 1.0 - float(np.var(np.diff(batch) / (KNOB["batch_cap"].high - 1)) + np.var(np.diff(kv) / 0.9))
    assert plan.score == pytest.approx(0.40 * throughput + 0.30 * slo + 0.20 * cost + 0.10 * max(stability, 0.0))


@asked("| cost budget per episode | – | – | 5.0 (normalised units) |", "the same budget in the plan's score of task 3")
def test_the_defaults_use_the_cost_budget_of_task_3() -> None:
    plan = grade_episode(played(3, "default_knobs")).plan
    assert plan is not None
    assert plan.breakdown["cost"] <= 0.1


@asked("Empty log: 0 with feedback. Unknown task: an error.", "the same; the error is a 422 that lists the known tasks")
def test_an_empty_log_scores_0_with_feedback_and_an_unknown_task_is_an_error(client: TestClient, answer: Call) -> None:
    empty = answer("/grader", {"task_id": 1, "episode_log": []})
    assert (empty["score"], empty["plan"]["score"]) == (0.0, 0.0)
    assert "empty" in empty["feedback"] and "empty" in empty["plan"]["feedback"]
    unknown = client.post("/grader", json={"task_id": "nope", "episode_log": []})
    assert (unknown.status_code, unknown.json()["detail"][0]["field"]) == (422, "task_id")


@asked(
    "Reference table of the README to meet or beat: random ~0.05/0.03/0.02, heuristic",
    "the README's benchmark table: PPO above 0.55 / 0.48 / 0.38 and above the heuristic on every task",
    "the plan's range for the defaults (.30–.40, .22–.32, .18–.28) does not hold: by its own formula they are the "
    "zero of task 1, keep half the points of task 2 by staying below 36 GB, and on task 3 keep stability and most of "
    "the throughput; `/baseline` answers the ranges that were measured",
)
def test_the_trained_policy_beats_the_heuristic_and_the_table_that_was_asked_for() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line.split("|")[2:5] for line in text.splitlines() if line.startswith("| `")}
    agents = ("ppo", "heuristic", "random")
    ppo, heuristic, random = ([float(cell.split()[0]) for cell in rows[name]] for name in agents)
    assert all(np.array(ppo) >= [0.55, 0.48, 0.38])
    assert all(np.array(ppo) > heuristic) and all(np.array(heuristic) > random)
