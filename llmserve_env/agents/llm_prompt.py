"""What a language model is told: the job, the knobs, the last windows with units, and how they have moved."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmserve_env.engine.knobs import Knob
from llmserve_env.tasks.task import Task

TOOL_NAME = "set_knobs"
QUESTION = "Which knobs do you change?"
SHOWN = {
    "request_arrival_rate": ("requests/s, average of 10 windows", 1),
    "queue_depth": ("requests waiting", 0),
    "active_requests": ("requests running", 0),
    "mean_prompt_length": ("tokens, average of 10 windows", 0),
    "p50_ttft_ms": ("ms to the first token, median of 10 windows", 0),
    "p99_ttft_ms": ("ms to the first token, 99th percentile of 10 windows", 0),
    "p50_itl_ms": ("ms between output tokens, median", 1),
    "throughput_tps": ("output tokens/s", 0),
    "slo_compliance_rate": ("share of requests within their SLO, 10 windows", 3),
    "kv_cache_occupancy": ("share of the KV pool in use", 3),
    "gpu_memory_used_gb": ("GB, fullest GPU", 1),
    "eviction_events": ("requests that lost their KV blocks", 0),
    "spec_acceptance_rate": ("share of draft tokens accepted", 2),
    "estimated_cost_per_1k": ("USD per 1,000 output tokens", 5),
    "reward": ("of the window, -1 to 1", 3),
}
"""Field of the observation -> its unit, and the decimals it is shown with."""
TREND = ("request_arrival_rate", "queue_depth", "p99_ttft_ms", "slo_compliance_rate", "kv_cache_occupancy", "reward")
"""Fields whose change over the windows shown is said in words."""


def _knob_schema(knob: Knob) -> dict[str, Any]:
    match knob.kind:
        case "bool":
            kind: dict[str, Any] = {"type": "boolean"}
        case "tier":
            kind = {"type": "string", "enum": [knob.wire(level) for level in knob.levels]}
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


def tool_schema(task: Task) -> dict[str, Any]:
    """The tool that sets knobs; those left out keep their values."""
    parameters = {**action_schema(task), "required": []}
    description = "Set serving knobs for the next windows. Knobs left out keep their values."
    return {
        "type": "function",
        "function": {"name": TOOL_NAME, "description": description, "parameters": parameters},
    }


def system_prompt(task: Task) -> str:
    """The job, the knobs and what counts, for one task."""
    w, spec = task.reward.weights, task.deployment
    classes = "; ".join(
        f"{c.name}: first token within {c.ttft_slo_ms:g} ms" if c.ttft_slo_ms else f"{c.name}: no deadline"
        for c in task.workload.classes
    )
    knobs = "\n".join(f"- {knob.name}: {knob.meaning}; {knob.allowed}" for knob in task.action_knobs)
    units = "\n".join(f"- {name}: {unit}" for name, (unit, _) in SHOWN.items())
    dwells = ", ".join(f"{name} {steps}" for name, steps in task.knobs.dwell_steps.items()) or "none"
    return (
        f"You operate an LLM inference service on {spec.replicas} GPUs of {spec.memory_limit_gb:g} GB. "
        f"{task.description}\n"
        f"Every window of {task.window_s:g} s you see metrics and set the knobs for the next windows; "
        f"an episode has {task.steps} windows.\n"
        f"Knobs:\n{knobs}\n"
        f"Knobs without effect here: {', '.join(task.masked_knobs) or 'none'}. "
        f"Windows a knob must dwell after a change: {dwells}.\n"
        f"Metrics:\n{units}\n"
        f"Promises: {classes}.\n"
        f"Reward per window: {w.throughput:g} x share served well and on time - {w.latency:g} x latency "
        f"- {w.violations:g} x share of broken promises - {w.cost:g} x cost - {w.memory:g} x memory pressure.\n"
        "End your answer with one JSON object of the knobs to change; knobs that you leave out keep their values."
    )


def shown_metrics(observation: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a window, rounded; what is not known yet is left out."""
    found = {name: observation[name] for name in SHOWN if observation.get(name) is not None}
    return {name: _rounded(value, SHOWN[name][1]) for name, value in found.items()}


def _rounded(value: float, digits: int) -> float:
    return round(value, digits) if digits else round(value)


def window_text(observation: Mapping[str, Any]) -> str:
    """One window as a line of JSON, with the knobs that were in force."""
    metadata = observation["metadata"]
    held = {"held_knobs": metadata["held_knobs"]} if metadata["held_knobs"] else {}
    return json.dumps(
        {"window": observation["step_index"], **shown_metrics(observation), "knobs": metadata["knobs"], **held}
    )


def trend_text(history: Sequence[Mapping[str, Any]]) -> str:
    """How the most important figures have changed over the windows shown."""
    first, last = shown_metrics(history[0]), shown_metrics(history[-1])
    changes = [
        f"{name} {last[name] - first[name]:+.{SHOWN[name][1]}f}" for name in TREND if name in first and name in last
    ]
    return f"Change over these {len(history)} windows: {', '.join(changes)}."


def user_prompt(history: Sequence[Mapping[str, Any]]) -> str:
    """The last windows, oldest first, how they moved, and the knobs in force."""
    lines = ["Last windows, oldest first:", *map(window_text, history)]
    if len(history) > 1:
        lines.append(trend_text(history))
    lines.append(f"Knobs in force: {json.dumps(history[-1]['metadata']['knobs'])}")
    lines.append(QUESTION)
    return "\n".join(lines)
