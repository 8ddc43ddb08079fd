"""The benchmark tasks keep the numbers they promise, and bad task files are refused with reasons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from llmserve_env.errors import ConfigError, UnknownTaskError
from llmserve_env.tasks.catalog import BENCHMARK, load_task
from llmserve_env.tasks.files import read_mapping, task_files
from llmserve_env.tasks.task import Task, parse_task
from llmserve_env.workloads import sample

LONG_PROMPT_TOKENS = 4096


@pytest.mark.parametrize(
    ("task_id", "replicas", "prefill", "limit_gb", "slos"),
    [
        ("static_workload", 1, 0, 40, [500]),
        ("bursty_workload", 3, 1, 36, [300]),
        ("adversarial_multitenant", 8, 2, 38, [200, 2000, 8000]),
    ],
)
def test_deployments_and_promises(task_id: str, replicas: int, prefill: int, limit_gb: int, slos: list[int]) -> None:
    task = load_task(task_id)
    assert (task.steps, task.window_s) == (200, 1.0)
    assert (task.deployment.replicas, task.deployment.prefill_replicas) == (replicas, prefill)
    assert task.deployment.memory_limit_gb == limit_gb
    assert [service.ttft_slo_ms for service in task.workload.classes] == slos


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_rewards_weigh_the_terms_as_the_plan_does(task_id: str) -> None:
    weights = load_task(task_id).reward.weights
    violations, cost = {"static_workload": (0.25, 0.10), "bursty_workload": (0.30, 0.10)}.get(task_id, (0.35, 0.15))
    assert (weights.throughput, weights.latency, weights.violations, weights.cost) == (0.40, 0.25, violations, cost)


def adversarial_traffic(outside_spikes: bool) -> Any:
    task = load_task("adversarial_multitenant")
    tables = [sample(task.workload, seed) for seed in range(40)]
    spiky = task.workload.tenants.index("spiky")
    rows = np.concatenate(
        [np.column_stack((t.tenant, t.priority, t.prompt_tokens, t.arrival_at_ps // 10**12)) for t in tables]
    )
    return rows[rows[:, 0] != spiky] if outside_spikes else rows


def test_adversarial_traffic_keeps_the_mix_of_classes_and_prompts() -> None:
    steady = adversarial_traffic(outside_spikes=True)
    assert len(steady) / (40 * 200) == pytest.approx(25.0, rel=0.05)
    everything = adversarial_traffic(outside_spikes=False)
    shares = np.bincount(everything[:, 1], minlength=3) / len(everything)
    assert shares == pytest.approx([0.2, 0.5, 0.3], abs=0.02)
    assert np.mean(everything[:, 2] >= LONG_PROMPT_TOKENS) == pytest.approx(0.3, abs=0.02)
    interactive = everything[everything[:, 1] == 0]
    assert interactive[:, 2].max() <= 128


def test_masked_knobs_are_those_the_task_does_not_name() -> None:
    assert load_task("static_workload").masked_knobs == (
        "speculation_depth",
        "quantization_tier",
        "prefill_decode_split",
        "priority_routing",
    )
    assert load_task("adversarial_multitenant").masked_knobs == ()


def test_tasks_are_found_by_number_and_unknown_ones_are_named() -> None:
    assert [load_task(number).id for number in range(1, len(BENCHMARK) + 1)] == list(BENCHMARK)
    with pytest.raises(UnknownTaskError, match="no_such_task"):
        load_task("no_such_task")


def changed(**parts: dict[str, Any]) -> Task:
    data = read_mapping(task_files()["static_workload"])
    for part, values in parts.items():
        data[part] |= values
    return parse_task(data)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"grader": {"weights": {"throughput": 0.5}}}, "add up to 1"),
        ({"grader": {"weights": {"charm": 1.0}}}, "charm"),
        ({"reward": {"itl_comfort_ms": 60}}, "itl_comfort_ms must be below itl_limit_ms"),
        ({"reward": {"class_weights": {"batch": 1.0}}}, "class_weights"),
        ({"deployment": {"waiting_room": [1, 2]}}, "waiting_room"),
        ({"knobs": {"active": ["batch_cap", "prefill_decode_split"]}}, "prefill_replicas is 0"),
        ({"workload": {"horizon_s": 100}}, "horizon_s must cover 200 s"),
    ],
)
def test_task_files_that_make_no_sense_are_refused(parts: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        changed(**parts)
