"""Scores that count requests: what they are sums of, and that losing requests never pays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from llmserve_env.engine.tiers import NUM_TIERS
from llmserve_env.env.episode import Episode, PlayedEpisode
from llmserve_env.graders import grade_episode
from llmserve_env.graders.components import COMPONENTS, components
from llmserve_env.graders.same_traffic import default_episode
from llmserve_env.request_outcomes import Ending
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.files import data_folder, references_path
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

Knobs = npt.NDArray[np.float64]
CORE = ("static_workload-v2", "bursty_workload-v2", "adversarial_multitenant-v2")
SEED = 300_700
GAIN = 0.3


def play(task: Task, choose: Callable[[Episode], Knobs], steps: int | None = None) -> PlayedEpisode:
    episode = Episode(task)
    episode.reset(SEED)
    for _ in range(steps or task.steps):
        episode.step(choose(episode))
    return episode.played()


def knobs(task: Task, **values: float) -> Knobs:
    row: Knobs = task.knobs_from_mapping(values)
    return row


def graded_copy(name: str, folder: Path) -> Task:
    """The task under another id, with references that ask for a little more than the defaults reach on the seed."""
    text = (data_folder() / f"{name}.yaml").read_text(encoding="utf-8")
    path = folder / "copied.yaml"
    lines = ["id: copied" if line.startswith("id: ") else line for line in text.splitlines()]
    path.write_text("\n".join(lines), encoding="utf-8")
    task = load_task(path)
    floor = default_episode(task, SEED).components
    content = {
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "task_digest": task_digest(task),
        "floor": floor,
        "optimum": {component: value + GAIN for component, value in floor.items()},
    }
    references_path(path).write_text(json.dumps(content), encoding="utf-8")
    return task


@pytest.mark.parametrize("name", CORE)
def test_components_are_shares_of_requests(name: str) -> None:
    task = load_task(name)
    episode = play(task, lambda _: knobs(task, batch_cap=48))
    window, found = episode.trajectory.window, components(episode)
    weights = np.array([task.reward.class_weights[c] for c in task.workload.class_names])
    judged = window["judged_by_class"].sum(axis=0)[: len(weights)] @ weights
    met = window["met_by_class_tier"].sum(axis=0).reshape(-1, NUM_TIERS)[: len(weights)].sum(axis=1) @ weights
    waited = window["wait_ppm_by_class"].sum(axis=0)[: len(weights)] @ weights / 1e6
    assert found["slo"] == pytest.approx(met / judged)
    assert found["ttft"] == pytest.approx(1.0 - waited / judged)
    assert set(found) == set(COMPONENTS)


@pytest.mark.parametrize("name", CORE)
def test_requests_of_windows_that_were_not_played_count_as_missed(name: str) -> None:
    task = load_task(name)
    whole, half = (components(play(task, lambda _: knobs(task, batch_cap=128), steps)) for steps in (200, 100))
    assert all(half[component] < 0.75 * whole[component] for component in ("slo", "throughput", "ttft"))


@pytest.mark.parametrize("name", CORE)
def test_the_defaults_score_0_and_serving_more_scores_more(name: str, tmp_path: Path) -> None:
    task = graded_copy(name, tmp_path)
    assert grade_episode(play(task, lambda _: task.default_knobs)).score == 0.0
    assert grade_episode(play(task, lambda _: knobs(task, batch_cap=192))).score > 0.0


@pytest.mark.parametrize("name", CORE)
def test_shedding_a_queue_loses_requests_and_scores_nothing(name: str, tmp_path: Path) -> None:
    """The policy that scored twice the defaults by windows: a cap of 4 whenever ten wait."""
    task = graded_copy(name, tmp_path)

    def shed(episode: Episode) -> Knobs:
        is_queue = float(episode.batch.metrics[0]["queue_depth"]) >= 10
        return knobs(task, batch_cap=4 if is_queue else 32, kv_budget_fraction=0.1)

    grade = grade_episode(play(task, shed))
    lost = default_episode(task, SEED).num_lost
    assert grade.requests.num_lost > lost
    assert (grade.score, "it scores 0" in grade.feedback) == (0.0, True)


def test_running_out_of_memory_is_seen_counted_and_recovered_from() -> None:
    """Batch 512 beside the whole KV pool does not fit: vLLM stops when it warms up its sampler."""
    task = load_task("bursty_workload-v2")
    corner, fitting = (
        knobs(task, batch_cap=512, kv_budget_fraction=1.0),
        knobs(task, batch_cap=512, kv_budget_fraction=0.85),
    )
    episode = play(task, lambda e: corner if 20 <= e.step_count < 25 else fitting)
    ooms, tokens = episode.trajectory.window["ooms"], episode.trajectory.window["output_tokens"]
    assert ooms[:20].sum() == 0
    assert ooms[20:27].sum() >= task.deployment.replicas
    assert ooms[40:].sum() == 0
    assert tokens[21:25].sum() == 0
    assert tokens[60:].mean() > 0.9 * tokens[5:20].mean()
    assert episode.trajectory.terms["memory"][20] == 1.0
    assert (episode.requests.ending == Ending.FINISHED).mean() > 0.5
