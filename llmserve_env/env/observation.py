"""Observations and states with the field names of the wire, for the server, LLM agents and in-process users alike."""

from __future__ import annotations

from typing import Any

from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.engine.layout import WINDOW_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.episode import COUNTS, Episode
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.kernels import REWARD_TERMS, TERMS_DTYPE
from llmserve_env.env.wire_names import WHOLE_NUMBERS, WIRE_NAMES
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION

NUM_SHARES = 3
"""Classes that `priority_distribution` distinguishes, most urgent first; further classes count as the last one."""
TOKENS_PER_1K = 1000.0
NO_COUNTS = (0,) * len(COUNTS)
COUNTS_DTYPE = WINDOW_DTYPE[list(COUNTS)]
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
    "surge_age_windows",
)
VERSIONS = {"environment": ENVIRONMENT_VERSION, "package": PACKAGE_VERSION}


def observe(episode: Episode) -> dict[str, Any]:
    """The last window by the wire's names. Before the first step there is no reward, and no SLO has been missed."""
    return observe_in(episode.batch, 0)


def observe_in(batch: EpisodeBatch, index: int) -> dict[str, Any]:
    """`observe` for one episode of a batch."""
    task, n = batch.task, int(batch.control[index]["step"])
    # Whole records at once: reading fields one by one takes longer than serving the window.
    m = dict(zip(METRIC_NAMES, batch.metrics[index].item(), strict=True))
    terms = dict(zip(TERM_NAMES, batch.terms[index].item(), strict=True))
    counts = dict(zip(COUNTS, batch.window.view(COUNTS_DTYPE)[index].item() if n else NO_COUNTS, strict=True))
    if n == 0:
        m["slo_attainment"] = 1.0
    shown = {field: m[metric] for metric, field in WIRE_NAMES.items()}
    shown |= {field: int(shown[field]) for field in WHOLE_NUMBERS}
    return {
        **shown,
        "slo_violation_rate": 1.0 - m["slo_attainment"],
        "estimated_cost_per_1k": TOKENS_PER_1K * terms["cost_usd"] / max(counts["output_tokens"], 1),
        "eviction_events": counts["preemptions"],
        "priority_distribution": _shares(m["class_share"].tolist()),
        "cost_so_far": float(batch.control[index]["cost_so_far_usd"]),
        "step_index": n,
        "task_id": task.id,
        "reward": terms["reward"] if n else None,
        "done": n >= task.steps or batch.backend.stopped is not None,
        "metadata": {
            "reward_terms": {name: terms[name] for name in REWARD_TERMS},
            "phase": batch.phase(index),
            "counts": counts,
            "gauges": {name: m[name] for name in GAUGES},
            "window_arrival_rate": m["window_rate_rps"],
            "knobs": mapping_from_knobs(batch.knobs[index].tolist(), task.action_knobs),
            "held_knobs": list(batch.held_knobs(index)),
            "masked_knobs": list(task.masked_knobs),
            "mode": batch.backend.mode,
            "versions": {**VERSIONS, "task": task.version},
            **batch.backend.details(),
        },
    }


def _shares(shares: list[float]) -> list[float]:
    return [*shares[: NUM_SHARES - 1], sum(shares[NUM_SHARES - 1 :])]


def state_of(episode: Episode) -> dict[str, Any]:
    """Progress and totals of the episode, by the wire's names."""
    return {
        "task_id": episode.task.id,
        "seed": episode.seed,
        "step_count": episode.step_count,
        "episode_length": episode.task.steps,
        "cumulative_reward": float(episode.batch.control[0]["total_reward"]),
        "done": episode.is_done,
        "phase": (phase := episode.phase),
        "workload_phase": phase,
        "totals": episode.trajectory.totals(),
    }
