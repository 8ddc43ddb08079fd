"""Successive halving: repeatable, side by side as one after the other, and never worse than the defaults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmserve_env.engine.knobs import NAMES
from llmserve_env.evaluation.runner import Threads
from llmserve_env.planning.tuning.constants import play_constants
from llmserve_env.planning.tuning.halving import first_candidates, halve, levels_of, neighbours
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from tests.own_tasks import own_task, write_task


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(write_task(tmp_path, own_task(steps=8)))


def test_threads_change_nothing(task: Task) -> None:
    one, two = (
        halve(task, lambda f: f.reward, num_configurations=9, num_seeds=3, seed=1, runner=Threads(jobs))
        for jobs in (1, 2)
    )
    assert [t.knobs.tolist() for t in one.trials] == [t.knobs.tolist() for t in two.trials]
    assert [t.outcome for t in one.trials] == [t.outcome for t in two.trials]


def test_the_winner_beats_the_defaults_and_everything_tried_as_long(task: Task) -> None:
    found = halve(task, lambda f: f.reward, num_configurations=9, num_seeds=3)
    seeds = range(200_000, 200_003)
    defaults = play_constants(task, task.default_knobs[None], seeds, Threads())[0]
    assert found.best.outcome.reward >= defaults.reward
    assert found.best.outcome.reward == max(t.outcome.reward for t in found.trials if t.num_seeds == 3)


def test_the_field_holds_the_defaults_and_no_configuration_twice(task: Task) -> None:
    field = first_candidates(task, 30, np.random.default_rng(0))
    assert len({tuple(row) for row in field}) == 30
    assert task.default_knobs.tolist() in field.tolist()


def test_knobs_that_cannot_matter_stay_where_they_are(task: Task) -> None:
    levels = dict(zip(NAMES, levels_of(task), strict=True))
    assert levels["prefill_decode_split"] == levels["priority_routing"] == (0.0,)
    assert all(np.count_nonzero(row != task.default_knobs) == 1 for row in neighbours(task, task.default_knobs))


def test_figures_do_not_depend_on_the_company(task: Task) -> None:
    rows = np.array([task.default_knobs, task.knobs_from_mapping({"batch_cap": 96, "quantization_tier": 1})])
    together = play_constants(task, rows, [200_000, 200_001], Threads())
    alone = [play_constants(task, row[None], [200_000, 200_001], Threads())[0] for row in rows]
    assert together == alone
