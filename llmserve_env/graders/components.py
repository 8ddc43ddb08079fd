"""What a score is made of: one number in [0, 1] per component and episode, higher is better.

Savings (memory, cost), smoothness (itl) and stability count in proportion to the traffic that was served as promised,
so that dropping requests cannot earn them. A step that was not played counts as a step in which nothing was served.
docs/metrics.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOB, named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.env.episode_batch import MEMORY_KNOB
from llmserve_env.tasks.sections import ComponentName
from llmserve_env.workloads import sample

COMPONENTS: tuple[str, ...] = get_args(ComponentName)
MOVED_BY = {"memory": MEMORY_KNOB}
"""Components that a single knob moves. Where a backend holds that knob, the component says nothing about an agent."""
SAVINGS = ("cost", "memory")


def per_step(terms: Array | Mapping[str, Any]) -> dict[str, Array]:
    """Components of each window that are means over the episode: all but stability."""
    return {
        "throughput": terms["throughput"],
        "slo": terms["slo"],
        "ttft": 1.0 - terms["ttft"],
        "itl": 1.0 - terms["itl"],
        "cost": terms["slo"] * (1.0 - terms["cost"]),
        "memory": terms["slo"] * (1.0 - terms["memory"]),
    }


def stability(knobs: Array) -> float:
    """One minus the mean change per step of the batch cap (in octaves) and the KV budget, each over its whole range."""
    if len(knobs) < 2:
        return 1.0
    cap, kv, chosen = KNOB["batch_cap"], KNOB["kv_budget_fraction"], named(knobs)
    octaves = np.abs(np.diff(np.log2(chosen[cap.name]))) / np.log2(cap.scale_high)
    budget = np.abs(np.diff(chosen[kv.name])) / (kv.high - kv.low)
    return 1.0 - 0.5 * float(octaves.mean() + budget.mean())


def components(episode: PlayedEpisode) -> dict[str, float]:
    """All components of an episode, over every step the task has, or over every request of its traffic."""
    steps, n = episode.task.steps, episode.step_count
    terms, knobs = episode.trajectory.terms[:n], episode.trajectory.knobs[:n]
    if episode.task.grader.counts == "requests":
        found = _over_requests(terms, _num_missing(episode), steps)
    else:
        found = {name: float(values.sum()) / steps for name, values in per_step(terms).items()}
    found["stability"] = found["slo"] * stability(knobs)
    return found


def _over_requests(terms: Array, missing: float, steps: int) -> dict[str, float]:
    """Shares of the requests, by the weight of their class; a window counts by what was judged in it.

    Every request is judged once, so a sum over windows of the weight judged times a share of it is a sum over requests.
    Money and memory are spent in every window alike: what was saved counts in proportion to the requests that met.
    """
    offered = terms["offered"]
    total = float(offered.sum()) + missing
    shares = {
        "throughput": terms["throughput"],
        "slo": terms["slo"],
        "ttft": 1.0 - terms["ttft"],
        "itl": 1.0 - terms["itl"],
    }
    found = {name: float((offered * share).sum()) / total if total else 1.0 for name, share in shares.items()}
    for name in SAVINGS:
        found[name] = found["slo"] * float((1.0 - terms[name]).sum()) / steps
    return found


def _num_missing(episode: PlayedEpisode) -> float:
    """Weight of the requests that an episode which stopped early left unjudged; 0 for a whole episode."""
    task, n = episode.task, episode.step_count
    if n >= task.steps:
        return 0.0
    requests = sample(task.workload, episode.seed)
    is_offered = requests.arrival_at_ps < task.steps * task.window_ps
    weights = np.array([task.reward.class_weights[name] for name in task.workload.class_names])
    offered = float(weights[requests.priority[is_offered]].sum())
    return max(offered - float(episode.trajectory.terms["offered"][:n].sum()), 0.0)
