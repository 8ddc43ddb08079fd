"""`info` of /step: the window by the plan's names, and what is needed to grade a list of such answers by replay."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from llmserve_env.backends.table.grid import PROMPT_BUCKETS
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.env.episode import Episode
from llmserve_env.version import ENVIRONMENT_VERSION

PROMPT_BUCKET_EDGES = PROMPT_BUCKETS[:-1]
BURST = "burst"


def step_info(episode: Episode, seen: dict[str, Any], overrides: dict[str, float] | None) -> dict[str, Any]:
    """What /reset and /step add to an observation; the cause of the window is there from the first step on."""
    metadata = seen["metadata"]
    info = {
        "reward_terms": metadata["reward_terms"],
        "phase": metadata["phase"],
        "held_knobs": metadata["held_knobs"],
        "timestep": episode.step_count,
        "metrics": _metrics(episode, seen),
        "workload": _workload(seen),
        "task_id": episode.task.id,
        "task_version": episode.task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "seed": episode.seed,
        "mode": metadata["mode"],
    }
    if episode.step_count:
        requested = episode.trajectory.requested[episode.step_count - 1]
        info["action"] = mapping_from_knobs(requested, episode.task.action_knobs)
    if overrides:
        info["reward_weights"] = overrides
    return info


def _metrics(episode: Episode, seen: dict[str, Any]) -> dict[str, Any]:
    """`models.MetricsSnapshot` as a mapping: validating it would take longer than the window."""
    window = episode.batch.window[0]
    missed = int(window["judged_by_class"].sum() - window["met_by_class_tier"].sum()) if episode.step_count else 0
    return {
        "ttft_p50_ms": seen["p50_ttft_ms"],
        "ttft_p99_ms": seen["p99_ttft_ms"],
        "tpot_ms": seen["p50_itl_ms"],
        "tps": seen["throughput_tps"],
        "gpu_mem_gb": seen["gpu_memory_used_gb"],
        "cost_per_1k": seen["estimated_cost_per_1k"],
        "spec_acceptance_rate": seen["spec_acceptance_rate"],
        "eviction_events": seen["eviction_events"],
        "slo_violations": missed,
        "oom": seen["metadata"]["counts"]["ooms"] > 0,
    }


def _workload(seen: dict[str, Any]) -> dict[str, Any]:
    """`models.WorkloadState` as a mapping."""
    phase = seen["metadata"]["phase"]
    return {
        "arrival_rate": seen["request_arrival_rate"],
        "mean_prompt_len": seen["mean_prompt_length"],
        "prompt_len_bucket": bisect_left(PROMPT_BUCKET_EDGES, seen["mean_prompt_length"]),
        "queue_depth": seen["queue_depth"],
        "priority_distribution": seen["priority_distribution"],
        "is_burst": phase == BURST,
        "phase": phase,
    }
