"""The extended suite: tasks made from figures of production traces, apart from the core suite."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import llmserve_env
from llmserve_env.graders.references import has_references, reference_for
from llmserve_env.planning.answer.load import tier_load
from llmserve_env.tasks.catalog import BENCHMARK, EXTENDED, SUITES, known_ids, load_task, task_ids
from llmserve_env.tasks.files import VARIANTS, base_id, data_folder, task_files
from llmserve_env.workloads import describe, sample
from llmserve_env.workloads.traces.statistics import dispersion


def test_every_shipped_task_belongs_to_one_suite() -> None:
    assert sorted(name for names in SUITES.values() for name in names) == sorted({*map(base_id, task_files())})
    for suite, names in SUITES.items():
        assert {load_task(name).suite for name in names} == {suite}
    assert [load_task(name).number for name in BENCHMARK] == list(range(1, len(BENCHMARK) + 1))
    assert {load_task(name).number for name in EXTENDED} == {0}


def test_the_core_suite_is_what_is_listed_and_the_extended_one_can_be_asked_for() -> None:
    assert task_ids() == list(BENCHMARK) == llmserve_env.task_ids()
    assert known_ids() == [*BENCHMARK, *VARIANTS, *EXTENDED]
    assert f"LLMServe/{EXTENDED[0]}-v1" in gym.registry


@pytest.mark.parametrize("name", EXTENDED)
def test_files_name_source_and_licence(name: str) -> None:
    head = (data_folder() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[:3]
    assert "Licence of the source" in head[1]
    assert head[2].startswith("# Assumed")


@pytest.mark.parametrize("name", EXTENDED)
def test_references_are_frozen_for_the_task_as_it_is(name: str) -> None:
    task = load_task(name)
    assert has_references(task), f"the task changed after its references were frozen: llmserve task freeze {name}"
    reference = reference_for(task)
    assert all(reference.optimum[part] - reference.floor[part] >= 0.02 for part in task.grader.weights)


@pytest.mark.parametrize("name", EXTENDED)
def test_an_environment_steps_and_pays(name: str) -> None:
    env = gym.make(load_task(name).gym_id)
    observation, _ = env.reset(seed=5)
    for _ in range(3):
        observation, reward, _, _, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert -1.0 <= float(reward) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", EXTENDED)
def test_mean_load_is_half_to_nine_tenths_of_capacity(name: str) -> None:
    task = load_task(name)
    assert 0.5 <= tier_load(task, 0, describe(task.workload).mean_rps).utilisation <= 0.9


def test_code_is_far_burstier_than_conversation() -> None:
    idc = {}
    for name in ("azure_code", "azure_conv"):
        spec = load_task(name).workload
        tables = [sample(spec, seed) for seed in range(6)]
        idc[name] = np.mean([dispersion(t.arrival_at_ps / 1e12, 10, spec.horizon_s).idc for t in tables])
    assert idc["azure_code"] > 10 * idc["azure_conv"]


def test_agents_share_prefixes_that_the_cache_can_keep() -> None:
    task = load_task("mooncake_agent")
    assert task.fleet.prefix_caching
    table = sample(task.workload, 1)
    assert set(np.unique(table.prefix_tokens)) == {512, 2560, 6144}


def test_tenants_keep_their_shares_and_their_own_burstiness() -> None:
    spec = load_task("servegen_tenants").workload
    shares = describe(spec).tenant_shares
    assert shares["tenant_1"] == pytest.approx(0.16, abs=0.03)
    bursty = [s.arrivals.cv for s in spec.sources if s.arrivals.kind == "gamma"]
    assert max(bursty) > 3 * min(bursty)
