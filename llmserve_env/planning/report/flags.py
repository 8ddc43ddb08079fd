"""The best constant as flags of `vllm serve`."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import Knob, named
from llmserve_env.profiles.architectures import HUB_NAMES
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.task import Task

CHECKPOINTS = {
    "FP16": ("", "the original checkpoint"),
    "INT8": ("compressed-tensors", "a W8A8 checkpoint; vLLM also finds its format by itself"),
    "INT4": ("awq_marlin", "a W4A16 checkpoint (AWQ; gptq_marlin for GPTQ)"),
}
"""Tier -> what --quantization takes, and which weights it needs."""
ALTERNATIVE = "--num-gpu-blocks-override"
"""Says what --gpu-memory-utilization says, in blocks; a command has one of them."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag and why it has this value."""

    name: str
    value: str
    why: str

    @property
    def text(self) -> str:
        """As it is typed."""
        return f"{self.name} {shlex.quote(self.value)}" if self.value else self.name


def hub_name(model: str) -> str:
    """The name that `vllm serve` takes for a model: the hub's where it is known, otherwise the profile's."""
    return HUB_NAMES.get(model, model)


def memory_utilisation(task: Task, knobs: Array) -> float:
    """Share of the card that weights, activations and the chosen share of the KV pool take."""
    fleet, chosen = task.fleet, named(knobs)
    draft = fleet.costs.draft.weight_bytes if chosen["speculation_depth"] > 0 else 0
    weights = fleet.costs.tiers[int(chosen["quantization_tier"])].weight_bytes
    fixed = weights + draft + fleet.activation_reserve_bytes
    pool = chosen["kv_budget_fraction"] * (fleet.memory_limit_bytes - fixed)
    return float((fixed + pool) / fleet.costs.memory_bytes)


def vllm_flags(task: Task, knobs: Array) -> list[Flag]:
    """What to start every replica with."""
    chosen = [flag for knob in task.knob_table if knob.flag for flag in _knob_flags(task, knobs, knob, knob.flag)]
    names = {flag.name for flag in chosen}
    return chosen + [flag for flag in _deployment_flags(task) if flag.name not in names]


def _knob_flags(task: Task, knobs: Array, knob: Knob, flag: str) -> list[Flag]:
    """The flags of one knob; none where its value is what vLLM does without a flag."""
    chosen = named(knobs)
    value = float(chosen[knob.name])
    match knob.name:
        case "kv_budget_fraction":
            drafts = bool(chosen["speculation_depth"] > 0)
            blocks = task.fleet.num_blocks(value, int(chosen["quantization_tier"]), drafts)
            why = f"weights, activations and {value:.0%} of the remaining memory for KV"
            return [
                Flag(flag, f"{memory_utilisation(task, knobs):.3f}", why),
                Flag(ALTERNATIVE, str(blocks), "instead: the same KV pool as a count of blocks of 16 tokens"),
            ]
        case "quantization_tier":
            quantization, checkpoint = CHECKPOINTS[TIER_NAMES[int(value)]]
            return [Flag(flag, quantization, checkpoint)] if quantization else []
        case "speculation_depth":
            draft = hub_name(load_profile(task.deployment.profile).draft.name)
            config = json.dumps({"model": draft, "num_speculative_tokens": int(value)})
            return [Flag(flag, config, knob.meaning)] if value else []
        case "priority_routing":
            return [Flag(flag, "priority", "send `priority` with each request, 0 the most urgent")] if value else []
    return [Flag(flag, f"{value:g}", knob.meaning)]


def _deployment_flags(task: Task) -> list[Flag]:
    """Flags that follow from the task's deployment, whatever the knobs."""
    spec = task.deployment
    flags = [
        Flag("--max-num-batched-tokens", str(spec.token_budget), "tokens per iteration"),
        Flag("--max-model-len", str(spec.max_model_len), "context window"),
    ]
    if spec.long_prefill_threshold:
        flags.append(
            Flag("--long-prefill-token-threshold", str(spec.long_prefill_threshold), "of one prompt at a time")
        )
    caching = "--enable-prefix-caching" if spec.prefix_caching else "--no-enable-prefix-caching"
    return [*flags, Flag(caching, "", "as in the task")]


def vllm_command(task: Task, knobs: Array) -> str:
    """One command for a terminal, a flag per line."""
    model = hub_name(load_profile(task.deployment.profile).model.name)
    flags = [flag.text for flag in vllm_flags(task, knobs) if flag.name != ALTERNATIVE]
    lines = [f"vllm serve {model}", *flags]
    return " \\\n  ".join(lines)
