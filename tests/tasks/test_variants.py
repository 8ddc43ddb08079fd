"""The same task with something else: each variant changes what it says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.engine.tiers import TIERS_BY_NAME
from llmserve_env.errors import ConfigError
from llmserve_env.profiles import load_profile
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import at_rate, on_fleet, on_profile, saturated, with_changes
from llmserve_env.workloads import describe
from tests.own_tasks import own_task, write_task

H100 = "h100-80gb.llama-3-8b"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(write_task(tmp_path, own_task()))


def test_fields_are_replaced_and_sections_are_merged(task: Task) -> None:
    changed = with_changes(task, steps=5, reward={"busy_share": 0.25})
    assert (changed.steps, changed.reward.busy_share) == (5, 0.25)
    restored = changed.model_copy(update={"steps": task.steps, "reward": task.reward})
    assert restored.model_dump() == task.model_dump()


def test_a_change_that_does_not_fit_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match="horizon_s must cover"):
        with_changes(task, steps=1000)


def test_the_rate_is_multiplied(task: Task) -> None:
    assert describe(at_rate(task, 0.5).workload).mean_rps == pytest.approx(3.0)
    assert describe(saturated(task, 4.0).workload).mean_rps == pytest.approx(24.0, rel=0.05)


def test_another_fleet_has_its_size_and_the_memory_of_its_gpu(task: Task) -> None:
    other = on_fleet(task, 3, H100)
    assert other.deployment.replicas == other.fleet.num_replicas == 3
    assert other.deployment.memory_limit_gb == pytest.approx(72, abs=6)


def test_another_profile_keeps_the_memory_limit(task: Task) -> None:
    assert task.fleet.costs.price_usd_per_hour != on_profile(task, H100).fleet.costs.price_usd_per_hour
    assert on_profile(task, H100).deployment.memory_limit_gb == task.deployment.memory_limit_gb
    assert on_profile(task, memory_limit_gb=21.0).deployment.memory_limit_gb == 21.0
    with pytest.raises(ConfigError, match="exceeds the"):
        on_profile(task, memory_limit_gb=80.0)


def test_another_profile_offers_its_own_tiers_at_the_prices_of_the_task(task: Task) -> None:
    priced = with_changes(task, deployment={"tiers": ["INT4", "FP16"]}, reward={"quality": {"chat": [0.5, 1.0]}})
    other = on_profile(priced, H100)
    assert other.deployment.tiers is None
    tiers = list(load_profile(H100).tiers)
    assert dict(zip(tiers, other.reward.quality["chat"], strict=True)) == {
        name: {"INT4": 0.5, "FP16": 1.0}.get(name, TIERS_BY_NAME[name].quality) for name in tiers
    }


def test_a_tier_that_the_profile_lacks_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"deployment\.tiers: FP4 not in .*, which has FP16, INT8, INT4"):
        with_changes(task, deployment={"tiers": ["FP16", "FP4"]})
    with pytest.raises(ConfigError, match=r"needs 2 figures, one per tier \(FP16, INT8\); got 3"):
        with_changes(task, deployment={"tiers": ["FP16", "INT8"]})


def test_a_variant_has_no_file(task: Task) -> None:
    assert task.file is not None
    assert [v.file for v in (at_rate(task, 2.0), on_fleet(task, 2), on_profile(task, H100))] == [None] * 3
