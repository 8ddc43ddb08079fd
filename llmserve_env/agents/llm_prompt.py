"""What a language model is told, and the shape its answer must have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import Knob, mapping_from_knobs
from llmserve_env.env.wire_names import WIRE_NAMES
from llmserve_env.errors import InvalidActionError
from llmserve_env.tasks.task import Task

DECIMALS = {
    "kv_cache_occupancy": 3,
    "itl_p50_ms": 1,
    "slo_attainment": 3,
    "peak_memory_gb": 1,
    "arrival_rate_rps": 1,
    "acceptance_rate": 2,
}
"""Decimals of the metrics in the prompt; the others have none."""


def _knob_schema(knob: Knob) -> dict[str, Any]:
    match knob.kind:
        case "bool":
            kind: dict[str, Any] = {"type": "boolean"}
        case "tier":
            kind = {"type": "string", "enum": list(TIER_NAMES)}
        case "int":
            kind = {"type": "integer", "minimum": int(knob.low), "maximum": int(knob.high)}
        case _:
            kind = {"type": "number", "minimum": knob.low, "maximum": knob.high}
    return {**kind, "description": knob.meaning}


def action_schema(task: Task) -> dict[str, Any]:
    """JSON schema of an action with every field required, as strict structured output asks for."""
    return {
        "type": "object",
        "properties": {knob.name: _knob_schema(knob) for knob in task.action_knobs},
        "required": [knob.name for knob in task.action_knobs],
        "additionalProperties": False,
    }


def parse_action(text: str | None, task: Task) -> Array:
    """Knobs of a model's answer; InvalidActionError says what is wrong with it."""
    names = [knob.name for knob in task.action_knobs]
    try:
        action = json.loads(text or "")
    except json.JSONDecodeError as error:
        raise InvalidActionError(f"the answer is not JSON: {error}") from error
    if not isinstance(action, dict) or set(action) != set(names):
        raise InvalidActionError(f"the answer must be an object with exactly the fields {', '.join(names)}")
    return task.knobs_from_mapping(action)


def system_prompt(task: Task) -> str:
    """The job, the knobs and what counts, for one task."""
    w, spec = task.reward.weights, task.deployment
    classes = "; ".join(
        f"{c.name}: first token within {c.ttft_slo_ms:g} ms" if c.ttft_slo_ms else f"{c.name}: no deadline"
        for c in task.workload.classes
    )
    knobs = "\n".join(f"- {knob.name}: {knob.meaning}; {knob.allowed}" for knob in task.action_knobs)
    dwells = ", ".join(f"{name} {steps}" for name, steps in task.knobs.dwell_steps.items()) or "none"
    return (
        f"You operate an LLM inference service on {spec.replicas} GPUs of {spec.memory_limit_gb:g} GB. "
        f"{task.description}\n"
        f"Every window of {task.window_s:g} s you see metrics and set the knobs for the next windows.\n"
        f"Knobs:\n{knobs}\n"
        f"Knobs without effect here: {', '.join(task.masked_knobs) or 'none'}. "
        f"Windows a knob must dwell after a change: {dwells}.\n"
        f"Promises: {classes}.\n"
        f"Reward per window: {w.throughput:g} x share served well and on time - {w.latency:g} x latency "
        f"- {w.violations:g} x share of broken promises - {w.cost:g} x cost - {w.memory:g} x memory pressure.\n"
        "Answer with one JSON object that sets every knob, and nothing else."
    )


def observation_text(task: Task, step: int, metrics: np.void, knobs: Array) -> str:
    """One window as a line of JSON."""
    shown = {name: round(float(metrics[name]), DECIMALS.get(name, 0)) for name in WIRE_NAMES}
    return json.dumps({"window": step, "metrics": shown, "knobs": mapping_from_knobs(knobs, task.action_knobs)})


def user_prompt(history: Sequence[str]) -> str:
    """The last windows, oldest first."""
    return "Last windows, oldest first:\n" + "\n".join(history) + "\nSet the knobs."
