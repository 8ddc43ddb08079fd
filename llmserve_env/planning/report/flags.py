"""The best constant as flags of `vllm serve`."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.task import Task

CHECKPOINTS = {
    "FP16": ("", "the original checkpoint"),
    "INT8": ("compressed-tensors", "a W8A8 checkpoint; vLLM also finds its format by itself"),
    "INT4": ("awq_marlin", "a W4A16 checkpoint (AWQ; gptq_marlin for GPTQ)"),
}
"""Tier -> what --quantization takes, and which weights it needs."""


HUB_NAMES = {
    "llama-3-8b": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B-Instruct",
}
"""Model of a profile -> its name on the Hugging Face hub, where it is known."""
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
    fleet, tier = task.fleet, fleet_tier(knobs)
    held = fleet.costs.tiers[tier].weight_bytes + (fleet.costs.draft.weight_bytes if knobs[2] > 0 else 0)
    fixed = held + fleet.activation_reserve_bytes
    pool = knobs[1] * (fleet.memory_limit_bytes - fixed)
    return float((fixed + pool) / fleet.costs.memory_bytes)


def fleet_tier(knobs: Array) -> int:
    """Index of the tier."""
    return int(knobs[3])


def vllm_flags(task: Task, knobs: Array) -> list[Flag]:
    """What to start every replica with."""
    spec, tier = task.deployment, TIER_NAMES[fleet_tier(knobs)]
    profile = load_profile(spec.profile)
    blocks = task.fleet.num_blocks(float(knobs[1]), fleet_tier(knobs), bool(knobs[2] > 0))
    flags = [
        Flag("--max-num-seqs", f"{knobs[0]:g}", "batch cap"),
        Flag("--max-num-batched-tokens", str(spec.token_budget), "tokens per iteration"),
        Flag("--max-model-len", str(spec.max_model_len), "context window"),
        Flag(
            "--gpu-memory-utilization",
            f"{memory_utilisation(task, knobs):.3f}",
            f"weights, activations and {knobs[1]:.0%} of the rest for KV",
        ),
        Flag(ALTERNATIVE, str(blocks), "instead: the same KV pool as a count of blocks of 16 tokens"),
    ]
    quantization, checkpoint = CHECKPOINTS[tier]
    if quantization:
        flags.append(Flag("--quantization", quantization, checkpoint))
    if knobs[2] > 0:
        config = json.dumps({"model": hub_name(profile.draft.name), "num_speculative_tokens": int(knobs[2])})
        flags.append(Flag("--speculative-config", config, "draft tokens per sequence and iteration"))
    if knobs[5]:
        flags.append(Flag("--scheduling-policy", "priority", "send `priority` with each request, 0 the most urgent"))
    if spec.long_prefill_threshold:
        flags.append(
            Flag("--long-prefill-token-threshold", str(spec.long_prefill_threshold), "of one prompt at a time")
        )
    caching = "--enable-prefix-caching" if spec.prefix_caching else "--no-enable-prefix-caching"
    flags.append(Flag(caching, "", "as in the task"))
    return flags


def vllm_command(task: Task, knobs: Array) -> str:
    """One command for a terminal, a flag per line."""
    model = hub_name(load_profile(task.deployment.profile).model.name)
    flags = [flag.text for flag in vllm_flags(task, knobs) if flag.name != ALTERNATIVE]
    lines = [f"vllm serve {model}", *flags]
    return " \\\n  ".join(lines)
