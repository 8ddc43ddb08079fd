"""The configurations that a search chooses from: settings an engine can be started with at no extra cost.

All of them use the whole KV pool, because a GPU is paid for with all its memory. The prefill/decode split is left out.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from llmserve_env.agents.constant import vllm_default_knobs
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.tasks.task import Task

BATCH_CAPS = (16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
DEPTHS = (0.0, 2.0)


def active_tiers(task: Task) -> tuple[int, ...]:
    """Tiers that the task allows, the one that replicas start with first."""
    offered = tuple(task.fleet.costs.tiers)
    return offered if "quantization_tier" in task.knobs.active else offered[:1]


def configurations(task: Task, tier: int) -> Array:
    """All configurations of a tier, those nearest to vLLM's defaults first; a knob the task fixes keeps its value."""
    choices: dict[str, tuple[float, ...]] = {"batch_cap": BATCH_CAPS, "speculation_depth": DEPTHS}
    if len(task.workload.classes) > 1:
        choices["priority_routing"] = (0.0, 1.0)
    high = {knob.name: knob.high for knob in task.knob_table}
    moved = {
        name: tuple(value for value in values if value <= high[name])
        for name, values in choices.items()
        if name in task.knobs.active
    }
    base = task.default_knobs
    if "batch_cap" in task.knobs.active:
        base = vllm_default_knobs(task)
    named(base)["quantization_tier"] = tier
    rows = []
    for values in product(*moved.values()):
        row = base.copy()
        for name, value in zip(moved, values, strict=True):
            named(row)[name] = value
        rows.append(row)
    return np.array(sorted(rows, key=lambda row: _distance(row, base)))


def _distance(row: Array, base: Array) -> tuple[float, ...]:
    """How far a configuration is from the base: knobs that differ, then by how much."""
    differs = row != base
    octaves = np.abs(np.log2(np.maximum(row, 1.0)) - np.log2(np.maximum(base, 1.0)))
    return float(np.count_nonzero(differs)), float(octaves.sum()), *(float(value) for value in row)
