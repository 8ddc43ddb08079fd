"""What a GPU's memory is spent on when an engine starts, and what is left for keys and values.

As in vLLM: a share of the card is the engine's; weights, the peak of activations at the token budget, and what the
libraries hold come first, and the KV pool takes the rest. CUDA graphs are captured in the memory above that share.
`docs/profiles.md` compares the result with what vLLM reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.composing.served import WAYS, Served
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.schema import Gpu, Profile

BYTES_PER_GIB = 2**30
UTILISATION = 0.9
"""Share of the card that vLLM takes unless told otherwise (--gpu-memory-utilization)."""
LIBRARIES_BYTES = int(0.22 * BYTES_PER_GIB)
"""Held outside PyTorch's allocator (CUDA context, cuBLAS, NCCL), as vLLM 0.26 reports on an H200."""
GRAPH_BYTES_PER_LAYER = 400_000
"""CUDA graphs, per layer and captured size: between the 0.29 MB (FP8) and 0.41 MB (bf16) that vLLM 0.26 reports."""
MIN_POOL_TOKENS = 2048
"""Tokens for which a card must have room beside the weights."""
SMALL_SIZES = 3
EIGHTS_UP_TO = 256


def captured_sizes(graph_max_tokens: int) -> int:
    """How many sizes vLLM captures: 1, 2, 4, then multiples of 8 up to 256, then of 16."""
    if graph_max_tokens == 0:
        return 0
    eights = min(graph_max_tokens, EIGHTS_UP_TO) // 8
    return SMALL_SIZES + eights + max(0, graph_max_tokens - EIGHTS_UP_TO) // 16


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Bytes of one GPU, as an engine finds them at its start."""

    card_bytes: int
    limit_bytes: int
    """The share of the card that the engine may fill."""
    weight_bytes: int
    activation_bytes: int
    """Peak of an iteration at the token budget."""
    logits_bytes: int
    """Logits and probabilities of as many sequences as may run."""
    libraries_bytes: int
    graph_bytes: int
    """CUDA graphs, in the memory above the limit."""
    kv_bytes_per_token: int

    @property
    def reserve_bytes(self) -> int:
        """What is set aside beside the weights before the KV pool is sized."""
        return self.activation_bytes + self.logits_bytes + self.libraries_bytes

    @property
    def pool_bytes(self) -> int:
        """What is left for keys and values; negative if the rest does not fit."""
        return self.limit_bytes - self.weight_bytes - self.reserve_bytes

    def pool_tokens(self, block_tokens: int = 16) -> int:
        """Tokens whose keys and values fit, in whole blocks."""
        return self.pool_bytes // (block_tokens * self.kv_bytes_per_token) * block_tokens


def engine_memory(
    profile: Profile,
    tier: str,
    token_budget: int,
    max_running: int,
    utilisation: float = UTILISATION,
    graph_max_tokens: int = 512,
) -> EngineMemory:
    """The account of one GPU for an engine that is started with these limits."""
    model = profile.model
    return EngineMemory(
        card_bytes=profile.gpu.memory_bytes,
        limit_bytes=int(utilisation * profile.gpu.memory_bytes),
        weight_bytes=profile.tiers[tier].weight_bytes,
        activation_bytes=token_budget * model.activation_bytes_per_token,
        logits_bytes=max_running * model.logits_bytes_per_sequence,
        libraries_bytes=LIBRARIES_BYTES,
        graph_bytes=(model.layers or 0) * captured_sizes(graph_max_tokens) * GRAPH_BYTES_PER_LAYER,
        kv_bytes_per_token=model.kv_bytes_per_token,
    )


def smallest_fit(gpu: Gpu, served: Served) -> int | None:
    """The smallest tensor parallelism, from that of `served` on, whose weights leave room for keys and values."""
    for ways in (n for n in WAYS if n >= served.tensor_parallel and served.model.heads % n == 0):
        shard = replace(served, tensor_parallel=ways)
        free_bytes = UTILISATION * gpu.memory_bytes - shard.weight_bytes - LIBRARIES_BYTES
        if free_bytes >= MIN_POOL_TOKENS * (shard.kv_bytes_per_token + shard.activation_bytes_per_token):
            return ways
    return None


def check_card(gpu_name: str, served: Served) -> None:
    """Refuse precisions that the card lacks, and models that do not fit; say what would."""
    gpu = GPUS[gpu_name]
    is_expanded = served.weights == "FP4" and served.model.mxfp4
    if served.weights not in gpu.peak_flops_per_s and not is_expanded:
        allowed = ", ".join(name.lower() for name in gpu.peak_flops_per_s)
        raise ProfileError(f"weights {served.weights.lower()}: {gpu_name} does not compute in it; allowed: {allowed}")
    smallest = smallest_fit(gpu, served)
    if smallest is None:
        raise ProfileError(
            f"{served.model.name} in {served.weights.lower()} does not fit {gpu_name} with tensor_parallel "
            f"{served.tensor_parallel}, and with no other: choose narrower weights or a larger card"
        )
    if smallest > served.tensor_parallel:
        raise ProfileError(
            f"tensor_parallel {served.tensor_parallel}: {served.model.name} in {served.weights.lower()} leaves no room "
            f"for keys and values on {gpu_name}; the smallest that fits is {smallest}"
        )


def memory_text(profile: Profile, tier: str, token_budget: int, max_running: int) -> str:
    """The account of one GPU in words."""
    found = engine_memory(profile, tier, token_budget, max_running)
    parts = {
        "weights": found.weight_bytes,
        f"activations of {token_budget:,} tokens": found.activation_bytes,
        f"logits of {max_running:,} sequences": found.logits_bytes,
        "libraries": found.libraries_bytes,
        "KV pool": found.pool_bytes,
    }
    told = ", ".join(f"{name} {size / BYTES_PER_GIB:.2f}" for name, size in parts.items())
    return (
        f"memory of one GPU in {tier}, GiB: {told}; {found.pool_tokens():,} tokens of KV cache"
        f"; CUDA graphs above that about {found.graph_bytes / BYTES_PER_GIB:.2f}"
    )
