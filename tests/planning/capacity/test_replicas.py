"""The smallest fleet that keeps a promise: as brute force finds it, whatever the shape of the curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.planning.capacity.replicas import Fleets, cheapest, find_capacity, smallest
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task
from tests.own_tasks import own_task, write_task

MAX_REPLICAS = 6
TARGET = 0.95


def poisson() -> dict[str, Any]:
    fields = own_task(id="steady")
    fields["workload"]["sources"][0]["arrivals"]["rate_rps"] = 30
    return fields


def bursts() -> dict[str, Any]:
    fields = own_task(id="bursts")
    fields["workload"]["sources"][0]["arrivals"] = {"kind": "on_off", "on_rps": 45, "on_s": 6, "off_s": 10}
    return fields


def long_prompts() -> dict[str, Any]:
    fields = own_task(id="long_prompts")
    fields["workload"]["classes"] = [
        {"name": "chat", "ttft_slo_ms": 800, "patience_s": 2},
        {"name": "batch", "ttft_slo_ms": 4000, "patience_s": 8},
    ]
    source = fields["workload"]["sources"][0]
    source["arrivals"] = {"kind": "gamma", "rate_rps": 9, "cv": 2.0}
    short = {**source["kinds"][0], "share": 0.5}
    long = {**short, "class": "batch", "prompt_tokens": {"kind": "uniform", "low": 2000, "high": 6000}}
    source["kinds"] = [short, long]
    return fields


@pytest.mark.parametrize("fields", [poisson(), bursts(), long_prompts()], ids=lambda fields: str(fields["id"]))
def test_bisection_agrees_with_simulating_every_count(tmp_path: Path, fields: dict[str, Any]) -> None:
    task = load_task(write_task(tmp_path, fields))
    found = find_capacity(task, tiers=(0, 1), target=TARGET, max_replicas=MAX_REPLICAS, num_episodes=2)
    for one in found:
        fleets = Fleets(task, one.tier, TARGET, num_episodes=2)
        every = [size for size in range(1, MAX_REPLICAS + 1) if fleets.keeps(size)]
        assert one.answer is not None
        assert one.answer.replicas == every[0] > 1
        assert one.answer.attainment == fleets.point(every[0]).attainment >= TARGET


def test_the_cheapest_answer_is_named(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, poisson()))
    found = find_capacity(task, tiers=(0, 1), target=TARGET, max_replicas=MAX_REPLICAS, num_episodes=1)
    best = cheapest(found)
    assert best is not None and best.answer is not None
    assert best.answer.gpu_usd_per_hour == min(one.answer.gpu_usd_per_hour for one in found if one.answer)
    assert best.answer.gpu_usd_per_hour == best.answer.replicas * task.fleet.costs.price_usd_per_hour


def test_a_promise_no_fleet_keeps_has_no_answer(tmp_path: Path) -> None:
    fields = own_task(id="impossible")
    fields["workload"]["classes"][0]["ttft_slo_ms"] = 1
    task: Task = load_task(write_task(tmp_path, fields))
    found = find_capacity(task, tiers=(0,), max_replicas=2, num_episodes=1)
    assert found[0].answer is None
    assert cheapest(found) is None


@given(first=st.integers(1, 40), limit=st.integers(1, 40))
def test_a_monotone_promise_is_found_with_few_simulations(first: int, limit: int) -> None:
    asked: set[int] = set()

    def keeps(count: int) -> bool:
        asked.add(count)
        return count >= first

    count, is_monotone = smallest(keeps, limit)
    assert is_monotone
    assert count == (first if first <= limit else None)
    assert len(asked) <= 2 * limit.bit_length() + 2


@given(kept=st.lists(st.booleans(), min_size=1, max_size=24))
def test_where_a_contradiction_is_seen_every_smaller_count_is_tried(kept: list[bool]) -> None:
    count, is_monotone = smallest(lambda size: kept[size - 1], len(kept))
    if count is None:
        assert not kept[-1]
    else:
        assert kept[count - 1]
        if not is_monotone:
            assert count == kept.index(True) + 1
