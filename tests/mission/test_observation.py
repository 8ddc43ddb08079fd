"""The observation: the README's fields, the plan's ranges, and the plan's view of a window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from inferencegym.models import MetricsSnapshot, QuantTier, ServeAction, ServeObservation, WorkloadState
from llmserve_env.models import ServeObservation as OurObservation
from tests.mission.asked import asked

README_FIELDS = [
    "queue_depth",
    "active_requests",
    "kv_cache_occupancy",
    "mean_prompt_length",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p50_itl_ms",
    "throughput_tps",
    "slo_compliance_rate",
    "gpu_memory_used_gb",
    "estimated_cost_per_1k",
    "request_arrival_rate",
    "spec_acceptance_rate",
    "eviction_events",
    "step_index",
    "task_id",
    "reward",
    "done",
    "metadata",
]
Call = Callable[..., dict[str, Any]]


@asked("README: `queue_depth, active_requests, kv_cache_occupancy", "all nineteen fields under these names")
def test_the_observation_has_every_field_of_the_readme(answer: Call) -> None:
    answer("/reset", {"task_id": 3})
    stepped = answer("/step", {"action": {}})
    seen = {**stepped["observation"], "reward": stepped["reward"], "done": stepped["done"]}
    assert set(README_FIELDS) <= set(seen)
    assert all(math.isfinite(seen[name]) for name in README_FIELDS[:14])


@asked(
    "Plan (ranges): queue depth [0, 512], mean prompt [32, 8192], arrival rate as 10-step EMA [0, 200]",
    "the same quantities with their true values; fractions lie in [0, 1], no value is clipped at a bound",
    "a queue of 600 requests is reported as 600: a value that is cut off would hide the overload it is there to show; "
    "TTFT covers the last 10 windows instead of 20 requests, so that it means the same at every rate",
)
def test_the_plans_quantities_are_observed_within_their_meaning(answer: Call) -> None:
    answer("/reset", {"task_id": 3})
    for _ in range(30):
        seen = answer("/step", {"action": {"batch_size": 8}})["observation"]
        fractions = ("kv_cache_occupancy", "slo_violation_rate", "spec_acceptance_rate")
        assert all(0.0 <= seen[name] <= 1.0 for name in fractions)
        assert 32 <= seen["mean_prompt_length"] <= 8192
        assert 0 <= seen["request_arrival_rate"] <= 200
        assert 0 <= seen["p50_ttft_ms"] <= 5000
        assert 0 <= seen["p50_itl_ms"] <= 500
        assert 0 <= seen["gpu_memory_used_gb"] <= 80
        assert 0 <= seen["step_index"] <= 200
        assert len(seen["priority_distribution"]) == 3
        assert seen["cost_so_far"] >= 0


@asked("TTFT p99, tokens/s, evictions, SLO violations", "`info.metrics` of /step, typed as `MetricsSnapshot`")
def test_every_step_carries_the_plans_metrics_of_the_window(answer: Call) -> None:
    answer("/reset", {"task_id": 2})
    for _ in range(20):
        stepped = answer("/step", {"action": {"batch_size": 8}})
    metrics = MetricsSnapshot.model_validate(stepped["info"]["metrics"])
    assert (metrics.tps, metrics.ttft_p99_ms) == (
        stepped["observation"]["throughput_tps"],
        stepped["observation"]["p99_ttft_ms"],
    )
    assert metrics.slo_violations > 0


@asked("prompt bucket 0..7 (edges 64,128,256,512,1024,2048,4096)", "`info.workload` of /step, typed as `WorkloadState`")
def test_every_step_carries_the_plans_state_of_the_workload(answer: Call) -> None:
    phases = set()
    for task, bucket in ((1, 1), (2, 3)):
        answer("/reset", {"task_id": task})
        for _ in range(60):
            workload = WorkloadState.model_validate(answer("/step", {"action": {}})["info"]["workload"])
            phases.add(workload.phase)
            assert workload.is_burst == (workload.phase == "burst")
        assert abs(workload.prompt_len_bucket - bucket) <= 1
    assert phases >= {"steady", "burst"}
    assert phases <= {"warmup", "steady", "burst", "cooldown"}


@asked(
    "the **plan** of InferenceGym (how it was meant to work; its names are accepted as aliases)",
    "`import inferencegym` is `llmserve_env`; `inferencegym.models` has the plan's five types",
)
def test_the_plans_import_path_gives_the_same_types() -> None:
    import inferencegym
    import llmserve_env

    assert inferencegym.LLMServeEnv is llmserve_env.LLMServeEnv
    assert ServeObservation is OurObservation
    assert ServeAction(batch_size=64, quant_tier=QuantTier.INT8) == ServeAction(batch_cap=64, quantization_tier="INT8")
    assert [tier.name for tier in QuantTier][:3] == ["FP16", "INT8", "INT4"]
