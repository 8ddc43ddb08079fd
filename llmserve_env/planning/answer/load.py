"""Load against capacity: what a fleet finishes when it is offered more than it can serve."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.play import play
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import saturated, with_changes

OVERLOADS = (4.0, 16.0, 64.0)
"""Multiples of the mean rate that are tried until the fleet falls behind."""
BEHIND = 0.8
"""Share of the offered requests below which a fleet has fallen behind."""
SATURATION_SEED = 0
LARGE_BATCH = 256


@dataclass(frozen=True, slots=True)
class TierLoad:
    """What a fleet can finish in one tier, against the load that is offered."""

    tier: int
    capacity_rps: float
    utilisation: float
    """Mean rate over capacity."""


def tier_load(task: Task, tier: int, mean_rps: float) -> TierLoad:
    """Finished requests per second at saturation, with large batches and the whole KV pool."""
    knobs = task.default_knobs
    changes = {"batch_cap": LARGE_BATCH, "quantization_tier": tier}
    for name, value in changes.items():
        named(knobs)[name] = value
    finished_rps = 0.0
    for factor in OVERLOADS:
        # Capacity is that of the fleet, whether or not the task lets an agent change these knobs.
        overloaded = with_changes(saturated(task, factor), knobs={"active": [*changes]})
        finished_rps = _finished_rps(overloaded, knobs)
        if finished_rps < BEHIND * factor * mean_rps:
            break
    return TierLoad(tier, finished_rps, mean_rps / finished_rps if finished_rps else float("inf"))


def _finished_rps(task: Task, knobs: Array) -> float:
    episode = play(ConstantAgent(knobs), task, [SATURATION_SEED])[0]
    finished = episode.trajectory.window["finished"]
    second_half = finished[task.steps // 2 :]
    return float(second_half.sum()) / (len(second_half) * task.window_s)
