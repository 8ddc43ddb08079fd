"""Tasks drawn at random: valid, repeatable, neither idle nor hopeless, and playable with the spaces of every other."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.agents.task_features import task_feature_names, task_vector
from llmserve_env.backends.real.tasks import H200_LIVE, real_task
from llmserve_env.env.spaces import ActionCodec, observation_space
from llmserve_env.evaluation.play import play
from llmserve_env.tasks.catalog import BENCHMARK, EXTENDED, load_task
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.randomisation import capacity_rps, drawn, perturbed, varied
from llmserve_env.tasks.task import Task

CORE = [load_task(name) for name in BENCHMARK]


def drawn_tasks(count: int, seed: int = 0) -> list[Task]:
    rng = np.random.default_rng(seed)
    return [drawn(rng) if i % 2 else varied(CORE[i // 2 % len(CORE)], rng) for i in range(count)]


def test_the_same_generator_draws_the_same_tasks() -> None:
    first, again, other = drawn_tasks(6), drawn_tasks(6), drawn_tasks(6, seed=1)
    assert [task_digest(task) for task in first] == [task_digest(task) for task in again]
    assert task_digest(first[1]) != task_digest(other[1])


def test_drawn_tasks_have_the_spaces_of_the_core_tasks_and_as_many_steps() -> None:
    for task in drawn_tasks(40):
        assert ActionCodec(task).space == ActionCodec(CORE[0]).space
        assert observation_space(task) == observation_space(CORE[0])
        assert task.steps == CORE[0].steps
        assert task_feature_names(task) == task_feature_names(CORE[0])


def test_a_perturbed_task_keeps_its_promises_and_changes_its_traffic_and_host() -> None:
    rng, task = np.random.default_rng(0), real_task(H200_LIVE)
    found = [perturbed(task, rng) for _ in range(30)]
    assert len({task_digest(one) for one in found}) == 30
    for one in found:
        assert ActionCodec(one).space == ActionCodec(task).space and one.reward == task.reward
        assert one.workload.classes == task.workload.classes
    scales = [one.deployment.host_time_scale for one in found]
    assert min(scales) < 0.9 and max(scales) > 1.1
    host = found[int(np.argmax(scales))].fleet.host
    assert host.no_graph.base_ps == pytest.approx(max(scales) * task.fleet.host.no_graph.base_ps, rel=1e-6)


def test_no_drawn_task_repeats_a_shipped_one() -> None:
    shipped = {task_digest(load_task(name)) for name in (*BENCHMARK, *EXTENDED)}
    assert not shipped & {task_digest(task) for task in drawn_tasks(20)}


def test_what_is_told_about_a_task_is_of_order_one() -> None:
    for task in [*CORE, *(load_task(name) for name in EXTENDED), *drawn_tasks(20)]:
        vector = task_vector(task)
        assert np.isfinite(vector).all()
        assert np.abs(vector).max() <= 4.0


def test_control_matters_on_most_drawn_tasks() -> None:
    rng = np.random.default_rng(3)
    spans = []
    for _ in range(6):
        task = drawn(rng, window_s=1.0)
        rewards = []
        for budget in (0.1, 0.3, 1.0):
            knobs = task.knobs_from_mapping({"batch_cap": 192, "kv_budget_fraction": budget})
            rewards.append(play(ConstantAgent(knobs), task, [1])[0].trajectory.terms["reward"].mean())
        spans.append(max(rewards) - min(rewards))
    assert np.median(spans) > 0.05


@pytest.mark.parametrize("longer", [(1024.0, 100.0), (512.0, 200.0)])
def test_longer_requests_leave_less_capacity(longer: tuple[float, float]) -> None:
    costs = CORE[0].fleet.costs
    assert capacity_rps(costs, *longer) < capacity_rps(costs, 512.0, 100.0)
