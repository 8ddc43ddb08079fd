"""What a model is, as far as serving it depends on it: read from its config.json, or known by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from llmserve_env.errors import ProfileError
from llmserve_env.json_files import read_json

KNOWN = Path(__file__).with_name("known_models.json")
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector per token instead of keys and values per head."""

    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward block."""

    count: int
    per_token: int
    ffn: int
    """Inner width of one expert."""
    shared_ffn: int = 0
    """Inner width of the experts that every token passes."""
    dense_layers: int = 0
    """Layers at the start that have a plain feed-forward block."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder with grouped-query or latent attention, and gated feed-forward blocks or experts."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tied_embeddings: bool = False
    experts: Experts | None = None
    latent: LatentAttention | None = None
    window: int = 0
    """Context of the layers with a sliding window; 0 without such layers."""
    windowed_layers: int = 0
    norms: str = "none"
    """Norms of queries and keys: none, over each head, or over the whole layer, which GPUs have to agree on."""
    mxfp4: bool = False
    """Whether its experts were published with 4-bit weights that are expanded to 16 bits (gpt-oss)."""
    fp8_blocks: bool = False
    """Whether the published FP8 weights have a scale per block of 128 x 128 instead of one per channel."""

    @property
    def full_layers(self) -> int:
        """Layers that attend to the whole context."""
        return self.layers - self.windowed_layers

    @property
    def kind(self) -> str:
        """dense, experts or latent: how `benchmarks.published` groups errors."""
        return "latent" if self.latent else "experts" if self.experts else "dense"

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention."""
        if self.latent is None:
            qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
            return self.hidden * (qkv + self.heads * self.head_dim)
        a, qk = self.latent, self.latent.qk_nope_head_dim + self.latent.qk_rope_head_dim
        queries = self.hidden * a.q_lora_rank + a.q_lora_rank * self.heads * qk
        latent = self.hidden * (a.kv_lora_rank + a.qk_rope_head_dim)
        expanded = a.kv_lora_rank * self.heads * (a.qk_nope_head_dim + a.v_head_dim)
        return queries + latent + expanded + self.heads * a.v_head_dim * self.hidden

    @property
    def dense_layers(self) -> int:
        """Layers with a plain feed-forward block."""
        return self.layers if self.experts is None else self.experts.dense_layers

    @property
    def expert_parameters(self) -> int:
        """Weights of the routed experts, all layers."""
        if self.experts is None:
            return 0
        return (self.layers - self.dense_layers) * self.experts.count * 3 * self.hidden * self.experts.ffn

    @property
    def other_parameters(self) -> int:
        """Weights of all layers' products besides the routed experts."""
        total = self.layers * self.attention_parameters + self.dense_layers * 3 * self.hidden * self.ffn
        if self.experts is not None:
            routed = self.layers - self.dense_layers
            total += routed * (3 * self.hidden * self.experts.shared_ffn + self.hidden * self.experts.count)
        return total

    @property
    def active_parameters(self) -> int:
        """Weights of the layers' products that one token passes."""
        if self.experts is None:
            return self.other_parameters
        routed = self.layers - self.dense_layers
        return self.other_parameters + routed * self.experts.per_token * 3 * self.hidden * self.experts.ffn

    @property
    def embedding_parameters(self) -> int:
        """Weights of the embedding, and of the LM head unless they are the same."""
        return self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)


def model_from_config(config: Mapping[str, Any], name: str) -> ModelSpec:
    """The model that a Hugging Face `config.json` describes; ProfileError names a field that is missing or odd."""
    config = config.get("text_config") or config
    missing = [key for key in NEEDED if not isinstance(config.get(key), int)]
    if missing:
        needed = f"needed: {', '.join(NEEDED)}"
        raise ProfileError(f"config.json of {name}: {', '.join(missing)} missing or no whole number; {needed}")
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    latent = _latent(config, name)
    windowed = _windowed_layers(config)
    return ModelSpec(
        name=name,
        hidden=hidden,
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        ffn=int(config.get("intermediate_size") or 0),
        vocabulary=config["vocab_size"],
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        experts=_experts(config, name),
        latent=latent,
        window=int(config.get("sliding_window") or 0) if windowed else 0,
        windowed_layers=windowed,
        norms=_norms(config),
        mxfp4=config.get("model_type") == "gpt_oss",
        fp8_blocks="weight_block_size" in (config.get("quantization_config") or {}),
    )


def _experts(config: Mapping[str, Any], name: str) -> Experts | None:
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    count = next((int(config[key]) for key in names if config.get(key)), 0)
    if count < 2:
        return None
    per_token = config.get("num_experts_per_tok") or config.get("experts_per_token")
    if not per_token:
        raise ProfileError(f"config.json of {name}: {count} experts but no num_experts_per_tok")
    ffn = config.get("moe_intermediate_size") or config.get("intermediate_size")
    if not ffn:
        raise ProfileError(f"config.json of {name}: experts without moe_intermediate_size or intermediate_size")
    shared = int(config.get("n_shared_experts") or 0) * int(ffn) or int(config.get("shared_intermediate_size") or 0)
    return Experts(count, int(per_token), int(ffn), shared, int(config.get("first_k_dense_replace") or 0))


def _latent(config: Mapping[str, Any], name: str) -> LatentAttention | None:
    if not config.get("kv_lora_rank"):
        return None
    keys = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    missing = [key for key in keys if not config.get(key)]
    if missing:
        raise ProfileError(f"config.json of {name}: latent attention lacks {', '.join(missing)}")
    return LatentAttention(*(int(config[key]) for key in keys))


def _norms(config: Mapping[str, Any]) -> str:
    if config.get("use_qk_norm"):
        return "layer" if config.get("qk_norm_type") == "per_layer" else "head"
    return "head" if str(config.get("model_type", "")).startswith("qwen3") else "none"


def _windowed_layers(config: Mapping[str, Any]) -> int:
    kinds = config.get("layer_types")
    if kinds and config.get("sliding_window"):
        return sum(kind == "sliding_attention" for kind in kinds)
    return int(config["num_hidden_layers"]) if config.get("sliding_window") and config.get("use_sliding_window") else 0


@cache
def _known() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(KNOWN.read_text(encoding="utf-8"))}


def known_models() -> list[str]:
    """Names of the models that need no config.json."""
    return list(_known())


def hub_name(name: str) -> str:
    """A known model's name on the Hugging Face hub."""
    return str(_known()[name]["hub_name"]) if name in _known() else name


def find_model(name: str | Path) -> ModelSpec:
    """A known model by its name or hub name, or the model in a config.json or in a folder that holds one."""
    if Path(name).is_dir() or str(name).endswith(".json"):
        return _read_config(Path(name))
    wanted = str(name).lower()
    for row in _known().values():
        if wanted in (row["name"], row["hub_name"].lower(), *(also.lower() for also in row.get("also", ()))):
            return model_from_config(row["config"], row["name"])
    raise ProfileError(
        f"model {str(name)!r} is not known; choose one of {', '.join(known_models())}, "
        "or give its config.json or the folder that holds it"
    )


def _read_config(path: Path) -> ModelSpec:
    """The model in a config.json, named after its folder, or after its file if that has another name."""
    file = path / "config.json" if path.is_dir() else path
    config = read_json(file, "the config.json of a model", ProfileError)
    if not isinstance(config, dict):
        raise ProfileError(f"model {str(path)!r}: config.json must hold an object")
    own = file.resolve().parent.name if file.name == "config.json" else file.stem
    return model_from_config(config, re.sub(r"[^a-z0-9-]+", "-", own.lower()).strip("-") or "model")
