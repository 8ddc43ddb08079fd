"""Grades: computed by replay, refused when the log could not have happened, and the same for the same actions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.knobs import default_knobs, named
from llmserve_env.env.episode import ActionLog, Episode, replay
from llmserve_env.errors import (
    InvalidLogError,
    LLMServeError,
    ReferencesNotFoundError,
    UnknownTaskError,
    VersionMismatchError,
)
from llmserve_env.evaluation.play import play
from llmserve_env.graders import grade, grade_episode
from llmserve_env.graders.components import COMPONENTS
from llmserve_env.graders.feedback import feedback_for
from llmserve_env.request_outcomes import request_figures
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.variants import with_changes

SEED = 7


def played(task_id: str, num_steps: int | None = None) -> Episode:
    """An episode with larger batches than the defaults', which score 0."""
    episode = Episode(task_id)
    episode.reset(SEED)
    knobs = default_knobs()
    named(knobs)["batch_cap"] = 128
    for _ in range(num_steps or episode.task.steps):
        episode.step(knobs)
    return episode


@pytest.fixture(scope="module")
def episode() -> Episode:
    return played("static_workload")


def changed_action(log: ActionLog, step: int, knob: int, value: float) -> ActionLog:
    actions = [list(action) for action in log.actions]
    actions[step][knob] = value
    return replace(log, actions=tuple(tuple(action) for action in actions))


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_grading_a_log_equals_grading_its_episode(task_id: str) -> None:
    episode = played(task_id)
    assert grade(episode.log()) == grade_episode(episode)


def test_a_grade_has_a_score_in_range_and_says_what_it_is_made_of(episode: Episode) -> None:
    given = grade_episode(episode)
    weights = episode.task.grader.weights
    assert 0.0 <= given.score <= 1.0
    assert given.score == pytest.approx(sum(weight * given.breakdown[name] for name, weight in weights.items()))
    assert set(given.breakdown) == {*weights, *(f"{name}_raw" for name in COMPONENTS)}
    assert all(np.isfinite(value) for value in given.breakdown.values())
    assert given.mode == "sim"
    assert given.feedback


def test_an_empty_log_scores_nothing_and_says_so(episode: Episode) -> None:
    given = grade(replace(episode.log(), actions=(), rewards=()))
    assert given.score == 0.0
    assert "empty" in given.feedback


def test_missing_steps_count_as_nothing_served(episode: Episode) -> None:
    log = episode.log()
    half = grade(replace(log, actions=log.actions[:100], rewards=log.rewards[:100]))
    assert "Truncated: 100 of 200" in half.feedback
    whole = grade(log)
    assert half.score < whole.score
    # About half of the requests arrive in the second half, and none of them counts as served.
    assert half.breakdown["slo_raw"] == pytest.approx(whole.breakdown["slo_raw"] / 2, rel=0.1)


def test_rewards_that_were_not_paid_are_refused(episode: Episode) -> None:
    log = episode.log()
    with pytest.raises(InvalidLogError, match=r"step 3 claims a reward of 1\.0"):
        grade(replace(log, rewards=(*log.rewards[:2], 1.0, *log.rewards[3:])))


def test_reordered_actions_are_refused() -> None:
    episode = Episode("static_workload")
    episode.reset(SEED)
    for step in range(20):
        episode.step(episode.task.knobs_from_mapping({"batch_cap": 8 if step < 10 else 128}))
    log = episode.log()
    with pytest.raises(InvalidLogError, match="claims a reward"):
        grade(replace(log, actions=log.actions[::-1]))


@pytest.mark.parametrize(
    ("knob", "value", "message"),
    [
        (0, float("nan"), "batch_cap must be a whole number from 1 to 512; got nan"),
        (0, 0.0, "batch_cap"),
        (0, 32.5, "batch_cap"),
        (1, float("inf"), "kv_budget_fraction"),
        (1, 0.05, "kv_budget_fraction must be a number from 0.1 to 1"),
        (3, 3.0, "quantization_tier"),
        (5, -1.0, "priority_routing"),
    ],
)
def test_knobs_out_of_range_are_refused(episode: Episode, knob: int, value: float, message: str) -> None:
    with pytest.raises(InvalidLogError, match=message):
        grade(changed_action(episode.log(), 5, knob, value))


def test_logs_of_the_wrong_shape_are_refused(episode: Episode) -> None:
    log = episode.log()
    with pytest.raises(InvalidLogError, match="201 actions"):
        grade(replace(log, actions=(*log.actions, log.actions[0]), rewards=()))
    with pytest.raises(InvalidLogError, match="199 rewards"):
        grade(replace(log, rewards=log.rewards[1:]))
    with pytest.raises(InvalidLogError, match="5 knobs"):
        grade(replace(log, actions=(log.actions[0][:5],), rewards=()))
    with pytest.raises(InvalidLogError, match="finite"):
        grade(replace(log, rewards=(float("nan"), *log.rewards[1:])))


def test_other_versions_and_tasks_are_refused(episode: Episode) -> None:
    log = episode.log()
    with pytest.raises(VersionMismatchError):
        grade(replace(log, environment_version="0"))
    with pytest.raises(VersionMismatchError):
        grade(replace(log, task_version=99))
    with pytest.raises(InvalidLogError, match="grade it as the task"):
        grade(log, load_task("bursty_workload"))
    with pytest.raises(UnknownTaskError):
        grade(replace(log, task_id="no_such_task"))


def test_every_refusal_is_an_error_of_the_library() -> None:
    assert issubclass(InvalidLogError, LLMServeError)


def test_a_log_without_rewards_is_graded_on_its_actions(episode: Episode) -> None:
    log = replace(episode.log(), rewards=())
    assert grade(log).score == grade_episode(replay(log)).score


def test_a_task_without_references_is_not_graded(episode: Episode) -> None:
    episode.task = with_changes(load_task("static_workload"), id="my_own")
    with pytest.raises(ReferencesNotFoundError, match="llmserve task freeze"):
        grade_episode(episode)
    episode.task = load_task("static_workload")


def test_the_feedback_blames_the_missed_slos_and_not_knobs_that_never_moved() -> None:
    [still] = play(make_agent("vllm_defaults"), load_task("adversarial_multitenant"), seeds=[42])
    said = grade_episode(still).feedback
    assert "were moved" not in said and "was billed" not in said
    assert "of the points for SLO: too many requests were served later than promised" in said
    assert "stability: only requests that met their SLO earn them, and too few did." in said
    assert "so there is no 99th percentile" in said


def test_the_feedback_blames_knobs_that_moved_without_need(episode: Episode) -> None:
    played = episode.played()
    measured = {"slo": 0.9, "stability": 0.4}
    said = feedback_for(played, request_figures(played.requests), {"slo": 0.8, "stability": 0.1}, measured)
    assert "10 % of the points for stability: batch cap and KV budget were moved" in said
    assert "only requests that met" not in said
