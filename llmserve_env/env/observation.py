"""What an episode looks like from outside: the wire's fields, for the server, LLM agents and in-process users alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.engine.layout import WINDOW_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.episode import Episode
from llmserve_env.env.kernels import TERMS_DTYPE
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION

NUM_SHARES = 3
"""Classes that `priority_distribution` tells apart, most urgent first; further ones count with the last."""
TOKENS_PER_1K = 1000.0
REWARD_TERMS = ("throughput", "latency", "violations", "cost", "memory")
COUNTS = ["arrived", "finished", "rejected", "abandoned", "preemptions", "ooms", "reloads", "output_tokens"]
NO_COUNTS = (0,) * len(COUNTS)
COUNTS_DTYPE = WINDOW_DTYPE[COUNTS]
METRIC_NAMES = METRICS_DTYPE.names or ()
TERM_NAMES = TERMS_DTYPE.names or ()
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
    rollouts, n = episode.rollouts, episode.step_count
    # Whole records at once: reading fields one by one takes longer than serving the window.
    m = dict(zip(METRIC_NAMES, rollouts.metrics[0].item(), strict=True))
    terms = dict(zip(TERM_NAMES, rollouts.terms[0].item(), strict=True))
    counts = dict(zip(COUNTS, rollouts.window.view(COUNTS_DTYPE)[0].item() if n else NO_COUNTS, strict=True))
    attainment = m["slo_attainment"] if n else 1.0
    return {
        "queue_depth": int(m["queue_depth"]),
        "active_requests": int(m["active_requests"]),
        "kv_cache_occupancy": m["kv_cache_occupancy"],
        "mean_prompt_length": m["mean_prompt_tokens"],
        "p50_ttft_ms": m["ttft_p50_ms"],
        "p99_ttft_ms": m["ttft_p99_ms"],
        "p50_itl_ms": m["itl_p50_ms"],
        "throughput_tps": m["throughput_tps"],
        "slo_compliance_rate": attainment,
        "slo_violation_rate": 1.0 - attainment,
        "gpu_memory_used_gb": m["peak_memory_gb"],
        "estimated_cost_per_1k": TOKENS_PER_1K * terms["cost_usd"] / max(counts["output_tokens"], 1),
        "request_arrival_rate": m["arrival_rate_rps"],
        "spec_acceptance_rate": m["acceptance_rate"],
        "eviction_events": counts["preemptions"],
        "priority_distribution": _shares(m["class_share"].tolist()),
        "cost_so_far": float(rollouts.memory[0]["cost_so_far_usd"]),
        "step_index": n,
        "task_id": episode.task.id,
        "reward": terms["reward"] if n else None,
        "done": episode.is_done,
        "metadata": {
            "reward_terms": {name: terms[name] for name in REWARD_TERMS},
            "phase": episode.phase,
            "counts": counts,
            "gauges": {name: m[name] for name in GAUGES},
            "window_arrival_rate": m["window_rate_rps"],
            "knobs": mapping_from_knobs(rollouts.memory[0]["current"].tolist(), episode.task.action_knobs),
            "held_knobs": list(episode.held_knobs),
            "masked_knobs": list(episode.task.masked_knobs),
            "mode": rollouts.mode,
            "versions": {**VERSIONS, "task": episode.task.version},
            **rollouts.details(),
        },
    }


def _shares(shares: list[float]) -> list[float]:
    return [*shares[: NUM_SHARES - 1], sum(shares[NUM_SHARES - 1 :])]


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
