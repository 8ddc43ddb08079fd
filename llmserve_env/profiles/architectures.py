"""Sizes of the models that profiles can be made for: weights, compute and KV cache.

The table of models is `architectures.json`: the profiler reads it too, on machines where this package is not installed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from llmserve_env.engine.tiers import TIERS_BY_NAME
from llmserve_env.errors import ProfileError


@dataclass(frozen=True, slots=True)
class Architecture:
    """A Llama-style decoder: grouped-query attention, SwiGLU, no biases."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    tied_embeddings: bool

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """(output, input) sizes of the four matrix products of one layer: QKV, output, gate and up, down."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        return (
            (qkv, self.hidden),
            (self.hidden, self.heads * self.head_dim),
            (2 * self.ffn, self.hidden),
            (self.hidden, self.ffn),
        )

    @property
    def linear_parameters(self) -> int:
        """Parameters of all layers' matrix products: what every iteration reads, without the LM head."""
        return self.layers * sum(n * k for n, k in self.linears)

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in 16 bits, all layers."""
        return 2 * 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def attention_flops_per_pair(self) -> int:
        """Floating-point operations of one query token attending to one key token, over all layers."""
        return 4 * self.layers * self.heads * self.head_dim

    @property
    def activation_bytes_per_token(self) -> int:
        """Growth of peak 16-bit activation memory per token of an iteration, as measured on an H200.

        QKV, gate and up, their product, and five vectors of the hidden size (residual, norms, layer in and out).
        """
        return 2 * (5 * self.hidden + self.linears[0][0] + 3 * self.ffn)

    @property
    def logits_bytes_per_sequence(self) -> int:
        """A row of logits in 16 bits, its 32-bit copy, and the sampler's 32-bit probabilities."""
        return (2 + 4 + 4) * self.vocabulary

    def weight_bytes(self, tier: str) -> int:
        """Resident weights of a tier; embedding and LM head stay in 16 bits in every tier, as engines keep them."""
        kind = TIERS_BY_NAME[tier]
        linear = self.linear_parameters * kind.bytes_per_weight
        linear += kind.channel_scale_bytes * self.layers * sum(n for n, _ in self.linears)
        if kind.group_weights:
            linear += kind.group_scale_bytes * self.linear_parameters // kind.group_weights
        embeddings = 2 * self.embedding_parameters * (1 if self.tied_embeddings else 2)
        return int(linear) + embeddings


def architecture_from_config(name: str, config: Mapping[str, Any]) -> Architecture:
    """The architecture described by the Hugging Face `config.json` of a Llama-style model."""
    needed = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    missing = [key for key in needed if key not in config]
    if missing:
        raise ProfileError(f"the config lacks {', '.join(missing)}: give the config.json of a Llama-style model")
    hidden, layers, heads, ffn, vocabulary = (int(config[key]) for key in needed)
    return Architecture(
        name=name,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads", heads)),
        head_dim=int(config.get("head_dim") or hidden // heads),
        ffn=ffn,
        vocabulary=vocabulary,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


_ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
ARCHITECTURES = {row["name"]: Architecture(**{f.name: row[f.name] for f in fields(Architecture)}) for row in _ROWS}
DRAFT_OF = {row["name"]: ARCHITECTURES[row["draft"]] for row in _ROWS if row["draft"]}
"""Served model -> the model that drafts for it."""
HUB_NAMES: dict[str, str] = {row["name"]: row["hub_name"] for row in _ROWS}
"""Model -> its name on the Hugging Face hub."""


def model_and_draft(name: str) -> tuple[Architecture, Architecture]:
    """A served model and the model that drafts for it; every profile has both."""
    if name not in DRAFT_OF:
        known = ", ".join(DRAFT_OF)
        raise ProfileError(f"no model {name!r} with a draft model; choose {known}, or add it to architectures.json")
    return ARCHITECTURES[name], DRAFT_OF[name]
