"""What a policy for several tasks is told about the one it plays: promises, prices, fleet and speed.

The numbers are constant over an episode and of order one. They follow the observation vector in the input of a policy
whose card lists them.
"""

from __future__ import annotations

from math import log, log2

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.profiles.prediction import predict_ps
from llmserve_env.tasks.task import Task
from llmserve_env.units import PS_PER_MS

SHOWN_TIERS = ("FP16", "INT8", "INT4")
"""Tiers that the features name; one that is not offered shows the figures of the first."""
NUM_CLASSES = 3
"""Classes told apart, most urgent first; further ones are left out, as in the observation."""
NO_SLO_MS = 60_000.0
"""In place of the SLO of a class without a promise."""
DECODE_BATCH, DECODE_CONTEXT, PREFILL_TOKENS = 64, 512, 512
"""The two iterations whose times describe the speed of a GPU."""
USUAL_KNOBS = tuple(knob for knob in KNOBS if not knob.is_optional)


def task_features(task: Task) -> dict[str, float]:
    """Name and value of every number, in order."""
    return {**_promises(task), **_prices(task), **_fleet(task), **_freedom(task)}


def task_vector(task: Task) -> Array:
    """The values alone."""
    return np.array(list(task_features(task).values()), np.float32)


def task_feature_names(task: Task) -> list[str]:
    """The names alone; the same for every task."""
    return list(task_features(task))


def _promises(task: Task) -> dict[str, float]:
    classes = task.workload.classes[:NUM_CLASSES]
    total = sum(task.reward.class_weights.values()) or 1.0
    found: dict[str, float] = {}
    for k in range(NUM_CLASSES):
        service = classes[k] if k < len(classes) else None
        slo_ms = NO_SLO_MS if service is None or service.ttft_slo_ms is None else service.ttft_slo_ms
        found[f"ttft_slo_{k}"] = log(slo_ms / 500.0) / 3.0
        found[f"class_weight_{k}"] = 0.0 if service is None else task.reward.class_weights[service.name] / total
    return found


def _prices(task: Task) -> dict[str, float]:
    reward, names = task.reward, task.workload.class_names
    total = sum(reward.class_weights.values()) or 1.0
    offered = _offered(task)
    at = [offered.index(tier) if tier in offered else 0 for tier in SHOWN_TIERS[1:]]
    worth = [sum(reward.class_weights[n] * reward.quality[n][i] for n in names) / total for i in at]
    weights = {f"weight_{name}": 2.0 * value for name, value in reward.weights.model_dump().items()}
    return {
        **weights,
        "int8_is_worth": worth[0],
        "int4_is_worth": worth[1],
        "itl_comfort": reward.itl_comfort_ms / 20.0,
        "itl_limit": reward.itl_limit_ms / 50.0,
        "busy_share": reward.busy_share,
    }


def _offered(task: Task) -> list[str]:
    return [TIER_NAMES[number] for number in task.fleet.costs.tiers]


def _fleet(task: Task) -> dict[str, float]:
    fleet, costs = task.fleet, task.fleet.costs
    spare = fleet.memory_limit_bytes - fleet.activation_reserve_bytes - costs.tiers[costs.first_tier].weight_bytes
    kv_tokens = max(spare / costs.kv_bytes_per_token, 1.0)
    speed: dict[str, float] = {}
    offered = _offered(task)
    for tier in SHOWN_TIERS:
        run = tier if tier in offered else offered[0]
        decode_ms = predict_ps(costs, run, decode=[(DECODE_BATCH, DECODE_CONTEXT)]) / PS_PER_MS
        prefill_ms = predict_ps(costs, run, prefill=[(PREFILL_TOKENS, 0)]) / PS_PER_MS
        speed |= {f"decode_{tier.lower()}": log(decode_ms / 15.0), f"prefill_{tier.lower()}": log(prefill_ms / 30.0)}
    return {
        "window": log2(task.window_s) / 2.0,
        "replicas": log2(fleet.num_replicas) / 3.0,
        "prefill_replicas": fleet.num_prefill_replicas / max(fleet.num_replicas, 1),
        "kv_pool": log(kv_tokens / 100_000.0) / 2.0,
        "token_budget": log2(fleet.token_budget / 2048.0) / 2.0,
        "long_prefill_limit": 1.0 if fleet.long_prefill_threshold == 0 else fleet.long_prefill_threshold / 2048.0,
        "prefix_caching": float(fleet.prefix_caching),
        **speed,
    }


def _freedom(task: Task) -> dict[str, float]:
    active = {f"{knob.feature}_acts": float(knob.name in task.knobs.active) for knob in USUAL_KNOBS}
    dwells = {
        f"{knob.feature}_dwell": task.knobs.dwell_steps.get(knob.name, 0) / 10.0
        for knob in USUAL_KNOBS
        if knob.is_costly
    }
    return active | dwells
