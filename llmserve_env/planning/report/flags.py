"""A configuration as something to start: flags of `vllm serve`, a docker command and a Kubernetes deployment."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass

import yaml

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.profiles.checkpoints import Checkpoint, find_checkpoint
from llmserve_env.profiles.schema import Parallelism, Profile
from llmserve_env.profiles.store import load_profile
from llmserve_env.profiles.vllm_defaults import VLLM_VERSION
from llmserve_env.tasks.task import Task

IMAGE = f"vllm/vllm-openai:v{VLLM_VERSION}"
PORT = 8000


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag and why it has this value."""

    name: str
    value: str
    why: str

    @property
    def words(self) -> list[str]:
        """The flag as arguments of a program."""
        return [self.name, self.value] if self.value else [self.name]


@dataclass(frozen=True, slots=True)
class Serving:
    """How every replica is started."""

    model: str
    flags: tuple[Flag, ...]
    notes: tuple[str, ...]
    """What to know before starting it."""

    @property
    def words(self) -> list[str]:
        """Model and flags as arguments of a program."""
        return [self.model, *(word for flag in self.flags for word in flag.words)]


def serving(task: Task, knobs: Array) -> Serving | None:
    """What to start; None where no checkpoint of the precision is known."""
    profile, chosen = load_profile(task.deployment.profile), named(knobs)
    tier = TIER_NAMES[int(chosen["quantization_tier"])]
    checkpoint = find_checkpoint(profile.model.name, tier, task.deployment.max_model_len)
    if checkpoint is None:
        return None
    flags = [*_limit_flags(task, knobs), *_context_flags(task, checkpoint), *_policy_flags(task, knobs)]
    return Serving(checkpoint.hub_name, tuple(flags), _notes(task, checkpoint, tier))


def memory_utilisation(task: Task, knobs: Array) -> float:
    """Share of the card that weights, activations and the chosen share of the KV pool take."""
    fleet, chosen = task.fleet, named(knobs)
    draft = fleet.costs.draft_bytes if chosen["speculation_depth"] > 0 else 0
    weights = fleet.costs.tiers[int(chosen["quantization_tier"])].weight_bytes
    fixed = weights + draft + fleet.activation_reserve_bytes
    pool = chosen["kv_budget_fraction"] * (fleet.memory_limit_bytes - fixed)
    return float((fixed + pool) / fleet.costs.memory_bytes)


def _limit_flags(task: Task, knobs: Array) -> list[Flag]:
    chosen = named(knobs)
    # Rounded down: a little less memory always fits.
    utilisation = math.floor(100.0 * memory_utilisation(task, knobs) + 1e-9) / 100.0
    return [
        Flag("--max-num-seqs", f"{chosen['batch_cap']:g}", "running requests per replica"),
        Flag("--max-num-batched-tokens", f"{chosen['token_budget']:g}", "tokens per iteration"),
        Flag("--gpu-memory-utilization", f"{utilisation:.2f}", "weights, activations and the KV pool"),
        *_parallel_flags(load_profile(task.deployment.profile)),
    ]


def _parallel_flags(profile: Profile) -> list[Flag]:
    """How a replica is spread over GPUs, and the precision of keys and values."""
    ways = profile.parallelism or Parallelism()
    why = "one GPU per replica, as simulated" if ways.gpus == 1 else "GPUs that split every layer"
    flags = [Flag("--tensor-parallel-size", str(ways.tensor_parallel), why)]
    if ways.pipeline_parallel > 1:
        flags.append(Flag("--pipeline-parallel-size", str(ways.pipeline_parallel), "groups of layers"))
    if ways.data_parallel_attention > 1:
        flags.append(Flag("--data-parallel-size", str(ways.data_parallel_attention), "groups of sequences"))
    if ways.expert_parallel > 1:
        flags.append(Flag("--enable-expert-parallel", "", "whole experts on different GPUs"))
    if profile.kv_cache == "fp8":
        flags.append(Flag("--kv-cache-dtype", "fp8", "precision of keys and values"))
    return flags


def _context_flags(task: Task, checkpoint: Checkpoint) -> list[Flag]:
    spec = task.deployment
    longest = min(spec.max_model_len, checkpoint.max_model_len or spec.max_model_len)
    caching = "--enable-prefix-caching" if spec.prefix_caching else "--no-enable-prefix-caching"
    flags = [Flag("--max-model-len", str(longest), "context window"), Flag(caching, "", "as in the task")]
    if spec.long_prefill_threshold:
        flags.append(
            Flag("--long-prefill-token-threshold", str(spec.long_prefill_threshold), "of one prompt at a time")
        )
    if spec.host is not None and not spec.schedules_ahead:
        flags.append(Flag("--no-async-scheduling", "", "as in the task"))
    return flags


def _policy_flags(task: Task, knobs: Array) -> list[Flag]:
    chosen, flags = named(knobs), []
    if chosen["speculation_depth"] > 0:
        model = load_profile(task.deployment.profile).draft
        draft = None if model is None else find_checkpoint(model.name, "FP16", task.deployment.max_model_len)
        if draft is not None:
            config = {"model": draft.hub_name, "num_speculative_tokens": int(chosen["speculation_depth"])}
            flags.append(Flag("--speculative-config", json.dumps(config), "drafts by a small model"))
    if chosen["priority_routing"]:
        flags.append(Flag("--scheduling-policy", "priority", "send `priority` with each request, 0 the most urgent"))
    return flags


def _notes(task: Task, checkpoint: Checkpoint, tier: str) -> tuple[str, ...]:
    model = load_profile(task.deployment.profile).model.name
    notes = [
        f"The flags are those of vLLM {VLLM_VERSION}. The simulated model is `{model}`; `{checkpoint.hub_name}` has "
        "the same architecture and size."
    ]
    if tier != "FP16":
        notes.append(
            f"{tier} changes answers: measure its accuracy on your prompts. vLLM reads the format from the checkpoint."
        )
    needed = task.workload.max_total_tokens
    if checkpoint.max_model_len is not None and checkpoint.max_model_len < needed:
        notes.append(
            f"The model takes {checkpoint.max_model_len:,} tokens, but the traffic may have requests of {needed:,}: "
            "longer ones are refused."
        )
    return tuple(notes)


def serve_command(found: Serving) -> str:
    """One command for a terminal, a flag per line."""
    return " \\\n  ".join([f"vllm serve {found.model}", *(shlex.join(flag.words) for flag in found.flags)])


def docker_command(found: Serving) -> str:
    """The same in vLLM's image."""
    head = f"docker run --gpus 1 --ipc=host -p {PORT}:{PORT} -v models:/models -e HF_HOME=/models -e HF_TOKEN {IMAGE}"
    flags = " ".join(shlex.join(flag.words) for flag in found.flags)
    return f"{head} \\\n  --model {found.model} {flags}"


def kubernetes_manifest(found: Serving, name: str, replicas: int) -> str:
    """A deployment of the whole fleet; a service in front of it spreads the requests."""
    label = {"app": "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")}
    container = {
        "name": "vllm",
        "image": IMAGE,
        "args": ["--model", *found.words],
        "ports": [{"containerPort": PORT}],
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}}}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": PORT}},
    }
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": label["app"]},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": label},
            "template": {"metadata": {"labels": label}, "spec": {"containers": [container]}},
        },
    }
    return str(yaml.safe_dump(manifest, sort_keys=False, width=200))
