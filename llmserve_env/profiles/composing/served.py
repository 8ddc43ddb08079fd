"""What a replica serves: a model, its precisions, and how it is spread over GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from llmserve_env.engine.tiers import TIERS_BY_NAME
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.model_spec import ModelSpec

KV_BYTES = {"fp16": 2, "fp8": 1}
"""Precision of keys and values -> bytes per number."""
WAYS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Served:
    """One replica. Sizes are those of one of its GPUs, which are all alike."""

    model: ModelSpec
    weights: str = "FP16"
    """A tier of `engine.tiers`."""
    kv_cache: str = "fp16"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    expert_parallel: int = 1
    """GPUs over which whole experts are spread; what remains of them splits each expert."""
    data_parallel_attention: int = 1
    """Groups of GPUs that attend to different sequences, while experts see the tokens of all."""

    def __post_init__(self) -> None:
        for problem in (_precisions(self), _ways(self), _expert_ways(self)):
            if problem is not None:
                raise ProfileError(problem)

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel_attention

    @property
    def expert_ways(self) -> int:
        """GPUs that share the experts of a layer."""
        return self.tensor_parallel * self.data_parallel_attention

    @property
    def rank_heads(self) -> int:
        return self.model.heads // self.tensor_parallel

    @property
    def rank_kv_heads(self) -> int:
        """Key-value heads on one GPU; with fewer heads than GPUs, several GPUs hold the same one."""
        return max(1, self.model.kv_heads // self.tensor_parallel)

    @property
    def rank_layers(self) -> int:
        """Layers on one GPU."""
        return -(-self.model.layers // self.pipeline_parallel)

    @property
    def dense_tier(self) -> str:
        """The tier of everything but the experts, which alone are in 4 bits in published checkpoints."""
        is_narrow = TIERS_BY_NAME[self.weights].bytes_per_weight < 1
        return "FP16" if self.model.experts is not None and is_narrow else self.weights

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token on one GPU, in the layers that keep the whole context."""
        model, width = self.model, KV_BYTES[self.kv_cache]
        layers = -(-model.full_layers // self.pipeline_parallel)
        if model.latent is not None:
            numbers = model.latent.kv_lora_rank + model.latent.qk_rope_head_dim
        else:
            numbers = 2 * self.rank_kv_heads * model.head_dim
        return -(-layers * width * numbers // self.data_parallel_attention)

    @property
    def weight_bytes(self) -> int:
        """Weights on one GPU; embedding and LM head stay in 16 bits."""
        model = self.model
        layers = model.expert_parameters * _bytes_per_weight(self.weights) / self.expert_ways
        layers += model.other_parameters * _bytes_per_weight(self.dense_tier) / self.tensor_parallel
        return int(layers / self.pipeline_parallel + 2 * model.embedding_parameters / self.tensor_parallel)

    @property
    def activation_bytes_per_token(self) -> int:
        """Growth of the peak of activations per token of an iteration: QKV, the feed-forward block, five vectors."""
        model, experts = self.model, self.model.experts
        width = model.ffn if experts is None else experts.ffn * experts.per_token + experts.shared_ffn
        qkv = (self.rank_heads + 2 * self.rank_kv_heads) * model.head_dim
        return int(2 * (5 * model.hidden + qkv + 3 * width / self.tensor_parallel))


def _bytes_per_weight(name: str) -> float:
    """Bytes of a weight with its share of the scales of its group."""
    tier = TIERS_BY_NAME[name]
    return tier.bytes_per_weight + (tier.group_scale_bytes / tier.group_weights if tier.group_weights else 0.0)


def _precisions(served: Served) -> str | None:
    if served.weights not in TIERS_BY_NAME:
        return f"weights {served.weights!r} unknown; choose one of {', '.join(name.lower() for name in TIERS_BY_NAME)}"
    if served.kv_cache not in KV_BYTES:
        return f"kv_cache {served.kv_cache!r} unknown; choose one of {', '.join(KV_BYTES)}"
    return None


def _ways(served: Served) -> str | None:
    model, tp = served.model, served.tensor_parallel
    for name in ("tensor_parallel", "pipeline_parallel", "expert_parallel", "data_parallel_attention"):
        if getattr(served, name) < 1:
            return f"{name} must be 1 or more; got {getattr(served, name)}"
    if model.heads % tp:
        fitting = ", ".join(str(n) for n in WAYS if model.heads % n == 0)
        return f"tensor_parallel {tp} does not divide the {model.heads} heads of {model.name}; allowed: {fitting}"
    if served.pipeline_parallel > model.layers:
        return f"pipeline_parallel {served.pipeline_parallel} exceeds the {model.layers} layers of {model.name}"
    return None


def _expert_ways(served: Served) -> str | None:
    model, ep = served.model, served.expert_parallel
    if model.experts is None:
        if ep > 1 or served.data_parallel_attention > 1:
            return f"expert_parallel and data_parallel_attention need a model with experts; {model.name} has none"
        return None
    if served.expert_ways % ep or model.experts.count % ep:
        allowed = ", ".join(str(n) for n in WAYS if served.expert_ways % n == 0 and model.experts.count % n == 0)
        return (
            f"expert_parallel {ep} must divide the {served.expert_ways} GPUs (tensor_parallel x "
            f"data_parallel_attention) and the {model.experts.count} experts of {model.name}; allowed: {allowed}"
        )
    return None
