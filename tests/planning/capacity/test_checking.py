"""The check of a task: load, feasibility and effects that fit the task."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.planning.answer.load import tier_load
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.search import find_answer
from llmserve_env.planning.capacity.checking import check_task
from llmserve_env.planning.capacity.text import check_text
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_fleet
from llmserve_env.workloads import describe
from tests.own_tasks import own_task, write_task

PROTOCOL = Protocol(num_search_seeds=2, num_fresh_seeds=2, max_replicas=3)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(write_task(tmp_path, own_task()))


def test_capacity_grows_with_the_fleet_and_load_falls(task: Task) -> None:
    mean_rps = describe(task.workload).mean_rps
    one, two = (tier_load(on_fleet(task, n), 0, mean_rps) for n in (1, 2))
    assert two.capacity_rps == pytest.approx(2 * one.capacity_rps, rel=0.1)
    assert two.utilisation == pytest.approx(one.utilisation / 2, rel=0.1)


def test_a_check_says_what_matters(task: Task) -> None:
    answer = find_answer(task, PROTOCOL)
    found = check_task(task, answer, PROTOCOL)
    assert 0.0 < found.loads[0].utilisation < 2.0
    assert {effect.name for effect in found.effects} == set(task.knobs.active)
    spans = [effect.span for effect in found.effects]
    assert spans == sorted(spans, reverse=True)
    text = check_text(task, answer, found)
    assert "of capacity" in text and "knob batch_cap" in text and "llmserve task freeze my_task.yaml" in text
