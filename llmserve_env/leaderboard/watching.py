"""One episode of every entry as series, for the page that plays it."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.env.episode import replay
from llmserve_env.leaderboard.submission import Submission, log_of
from llmserve_env.tasks.catalog import load_task

METRICS = {
    "window_rate_rps": 1,
    "queue_depth": 0,
    "ttft_p50_ms": 0,
    "ttft_p99_ms": 0,
    "kv_cache_occupancy": 2,
    "throughput_tps": 0,
}
"""Metric -> decimals it is shown with."""
_CHOICES = {"bool": ("off", "on"), "tier": TIER_NAMES}
"""Names of the values of knobs that are not quantities."""


def watched_episodes(submission: Submission) -> dict[str, Any]:
    """Task -> the first official episode: metrics, SLO, reward and knobs of every window."""
    found = {}
    for task in submission.tasks:
        first = task.episodes[0]
        episode = replay(log_of(first, task, submission.environment_version), load_task(task.id))
        trajectory, here = episode.trajectory, episode.task
        knobs = named(trajectory.knobs)
        found[task.id] = {
            "seed": first.seed,
            "window_s": here.window_s,
            "slos_ms": {service.name: service.ttft_slo_ms for service in here.workload.classes if service.ttft_slo_ms},
            "metrics": {name: _rounded(trajectory.metrics[name], digits) for name, digits in METRICS.items()},
            "slo": _rounded(trajectory.terms["slo"], 3),
            "reward": _rounded(trajectory.terms["reward"], 3),
            "knobs": {
                knob.short: {
                    "high": knob.high,
                    "values": _rounded(knobs[knob.name], 3),
                    "names": _CHOICES.get(knob.kind),
                }
                for knob in here.action_knobs
                if knob.name in here.knobs.active
            },
        }
    return found


def _rounded(values: Array, digits: int) -> list[float]:
    rounded: list[float] = np.round(values.astype(np.float64), digits).tolist()
    return [int(value) if value == int(value) else value for value in rounded]
