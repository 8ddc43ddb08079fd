"""What an episode looks like from outside: the wire's fields, for the server, LLM agents and in-process users alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.env.episode import Episode
from llmserve_env.env.knob_values import mapping_from_knobs
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION

NUM_SHARES = 3
"""Classes that `priority_distribution` tells apart, most urgent first; further ones count with the last."""
TOKENS_PER_1K = 1000.0
REWARD_TERMS = ("throughput", "latency", "violations", "cost", "memory")
COUNTS = ("arrived", "finished", "rejected", "abandoned", "preemptions", "ooms", "reloads", "output_tokens")
GAUGES = (
    "oldest_wait_ms",
    "busy_gpu_s",
    "in_service_gpu_s",
    "reserved_gb_s",
    "available_replicas",
    "tier_progress",
    "split",
)
VERSIONS = {"environment": ENVIRONMENT_VERSION, "package": PACKAGE_VERSION}


def observe(episode: Episode) -> dict[str, Any]:
    """The last window by the wire's names; before the first step there is no reward, and nothing has been missed."""
    metrics, window = episode.rollouts.metrics[0], episode.rollouts.window[0]
    terms, memory = episode.rollouts.terms[0], episode.rollouts.memory[0]
    n = episode.step_count
    has_begun = n > 0
    attainment = float(metrics["slo_attainment"]) if has_begun else 1.0
    cost_usd = float(terms["cost_usd"])
    return {
        "queue_depth": int(metrics["queue_depth"]),
        "active_requests": int(metrics["active_requests"]),
        "kv_cache_occupancy": float(metrics["kv_cache_occupancy"]),
        "mean_prompt_length": float(metrics["mean_prompt_tokens"]),
        "p50_ttft_ms": float(metrics["ttft_p50_ms"]),
        "p99_ttft_ms": float(metrics["ttft_p99_ms"]),
        "p50_itl_ms": float(metrics["itl_p50_ms"]),
        "throughput_tps": float(metrics["throughput_tps"]),
        "slo_compliance_rate": attainment,
        "slo_violation_rate": 1.0 - attainment,
        "gpu_memory_used_gb": float(metrics["peak_memory_gb"]),
        "estimated_cost_per_1k": TOKENS_PER_1K * cost_usd / max(int(window["output_tokens"]), 1) if has_begun else 0.0,
        "request_arrival_rate": float(metrics["arrival_rate_rps"]),
        "spec_acceptance_rate": float(metrics["acceptance_rate"]),
        "eviction_events": int(window["preemptions"]) if has_begun else 0,
        "priority_distribution": _shares(metrics["class_share"]),
        "cost_so_far": float(memory["cost_so_far_usd"]),
        "step_index": n,
        "task_id": episode.task.id,
        "reward": float(terms["reward"]) if has_begun else None,
        "done": episode.is_done,
        "metadata": _metadata(episode),
    }


def _shares(class_share: Any) -> list[float]:
    shares = [float(share) for share in class_share]
    return [*shares[: NUM_SHARES - 1], sum(shares[NUM_SHARES - 1 :])]


def _metadata(episode: Episode) -> dict[str, Any]:
    rollouts = episode.rollouts
    metrics, window, terms = rollouts.metrics[0], rollouts.window[0], rollouts.terms[0]
    has_begun = episode.step_count > 0
    return {
        "reward_terms": {name: float(terms[name]) for name in REWARD_TERMS},
        "phase": episode.phase,
        "counts": {name: int(window[name]) if has_begun else 0 for name in COUNTS},
        "gauges": {name: float(metrics[name]) for name in GAUGES},
        "window_arrival_rate": float(metrics["window_rate_rps"]),
        "knobs": mapping_from_knobs(rollouts.memory[0]["current"]),
        "held_knobs": list(episode.held_knobs),
        "masked_knobs": list(episode.task.masked_knobs),
        "mode": "sim",
        "versions": {**VERSIONS, "task": episode.task.version},
    }


def totals(episode: Episode) -> dict[str, float]:
    """Sums over the episode so far."""
    n, trajectory = episode.step_count, episode.trajectory
    counted = {name: float(np.sum(trajectory.window[name][:n])) for name in COUNTS}
    return {**counted, "cost_usd": float(episode.rollouts.memory[0]["cost_so_far_usd"])}


def state_of(episode: Episode) -> dict[str, Any]:
    """Where the episode stands, by the wire's names."""
    return {
        "task_id": episode.task.id,
        "seed": episode.seed,
        "step_count": episode.step_count,
        "episode_length": episode.task.steps,
        "cumulative_reward": float(episode.rollouts.memory[0]["total_reward"]),
        "done": episode.is_done,
        "phase": episode.phase,
        "totals": totals(episode),
    }
