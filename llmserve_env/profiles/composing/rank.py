"""One GPU's share of an iteration, summed from timed kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.composing.attention import (
    CONTEXT_KNOTS,
    AttentionTimes,
    grouped_attention,
    latent_attention,
)
from llmserve_env.profiles.composing.kernel_tables import BLOCK_SCALED, KernelTables
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.roofline import Roofline
from llmserve_env.profiles.schema import Gpu

SMALL_KERNELS = 5
"""Per layer: two residual-and-norm kernels, rotary embedding, KV-cache write, SwiGLU."""
NORM_KERNELS = 2
"""Per layer, where queries and keys have norms of their own."""
FP4_KERNELS = 4
"""Per layer: rounding the input of each product to 4 bits, which no other kernel does on the way."""
SMALL_KERNEL_US = 1.75
"""Fixed time of a small kernel: the mean in our H200 measurements (machine.small_kernel_us)."""
STREAMING_EFFICIENCY = 0.8
"""Share of peak bandwidth that elementwise kernels reach; aiconfigurator-core's constant."""
PRODUCT_TYPES = {"FP16": "bfloat16", "FP8": "fp8", "FP4": "nvfp4"}
EXPERT_TYPES = {**PRODUCT_TYPES, "INT4": "int4_wo"}
MXFP4 = "w4a16_mxfp4"
"""Experts of gpt-oss: 4-bit weights, 16-bit activations."""
MIN_WIDTH = 32
"""The narrowest product that was timed."""


@dataclass(frozen=True)
class Rank:
    """One GPU of a replica. Times are milliseconds over the tables' token counts."""

    served: Served
    tables: KernelTables
    gpu: Gpu

    @property
    def product_type(self) -> str:
        """Type of the dense products in the tables."""
        tier = self.served.dense_tier
        if tier not in PRODUCT_TYPES:
            raise ProfileError(
                f"weights {tier.lower()}: no products of {self.served.model.name} were timed in it; "
                f"choose one of {', '.join(name.lower() for name in PRODUCT_TYPES)}"
            )
        return BLOCK_SCALED if tier == "FP8" and self.served.model.fp8_blocks else PRODUCT_TYPES[tier]

    @property
    def expert_type(self) -> str:
        """Type of the experts in the tables."""
        tier, model = self.served.weights, self.served.model
        if tier not in EXPERT_TYPES:
            raise ProfileError(
                f"weights {tier.lower()}: no experts were timed in it; "
                f"choose one of {', '.join(name.lower() for name in EXPERT_TYPES)}"
            )
        if tier == "FP4" and model.mxfp4:
            return MXFP4
        return BLOCK_SCALED if tier == "FP8" and model.fp8_blocks else EXPERT_TYPES[tier]

    def products_ms(self, *shapes: tuple[int, int]) -> Array:
        """Dense products of (outputs, inputs), one after another."""
        return np.asarray(np.sum([self.tables.product_ms(self.product_type, n, k) for n, k in shapes], axis=0))

    @cached_property
    def attention(self) -> AttentionTimes:
        """Attention of all layers."""
        model, heads = self.served.model, self.served.rank_heads
        if model.latent is None:
            return grouped_attention(self.served, self.tables)
        a = model.latent
        products_ms = self.tables.latent_products_ms(heads) + self.products_ms(
            (a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim, model.hidden),
            (heads * (a.qk_nope_head_dim + a.qk_rope_head_dim), a.q_lora_rank),
            (model.hidden, heads * a.v_head_dim),
        )
        return latent_attention(self.served, self.tables, self.product_type, products_ms)

    def tokens_ms(self) -> Array:
        """All that depends on the tokens of an iteration alone, without the fixed time of small kernels."""
        total = self._attention_products_ms() + self._feed_forward_ms() + self._experts_ms() + self._all_reduces_ms()
        total = total + self.attention.tokens + self._streaming_ms() + self._stages_ms()
        return np.maximum.accumulate(self._on_this_memory(total, self.served.weight_bytes))

    def _on_this_memory(self, ms: Array, read_bytes: float) -> Array:
        """Times on a card with slower memory than the timed one: only the memory-bound share grows."""
        factor = self.tables.system.memory_factor
        if factor == 1.0:
            return ms
        self.tables.note(f"memory-bound parts times {factor:.2f}, the timed card's bandwidth over this one's")
        timed_ms = read_bytes / (factor * self.gpu.memory_bandwidth_bytes_per_s) * 1e3
        return Roofline.of(self.tables.tokens, ms, timed_ms).with_memory_slower(ms, factor)

    def context_ms(self) -> Array:
        """Decode attention at CONTEXT_KNOTS, never faster than the card reads keys and values."""
        read_ms = np.array(CONTEXT_KNOTS) * self.served.kv_bytes_per_token / self.gpu.memory_bandwidth_bytes_per_s * 1e3
        slower = 1.0 - 1.0 / self.tables.system.memory_factor
        return np.maximum(self.attention.context + slower * read_ms, read_ms)

    def _attention_products_ms(self) -> Array:
        model, served = self.served.model, self.served
        if model.latent is not None:
            return np.zeros(len(self.tables.tokens))
        qkv = (served.rank_heads + 2 * served.rank_kv_heads) * model.head_dim
        return model.layers * self.products_ms((qkv, model.hidden), (model.hidden, served.rank_heads * model.head_dim))

    def _feed_forward_ms(self) -> Array:
        model = self.served.model
        if model.dense_layers == 0:
            return np.zeros(len(self.tables.tokens))
        ffn = max(model.ffn // self.served.tensor_parallel, MIN_WIDTH)
        return model.dense_layers * self.products_ms((2 * ffn, model.hidden), (model.hidden, ffn))

    def _experts_ms(self) -> Array:
        model, served = self.served.model, self.served
        if model.experts is None:
            return np.zeros(len(self.tables.tokens))
        e, routed = model.experts, model.layers - model.dense_layers
        split = served.expert_ways // served.expert_parallel
        shape = (model.hidden, e.ffn, e.per_token, e.count)
        layer_ms = self.tables.experts_ms(self.expert_type, shape, split, served.expert_parallel)
        layer_ms = layer_ms + self.tables.product_ms("bfloat16", max(e.count, MIN_WIDTH), model.hidden)
        if e.shared_ffn:
            shared = max(e.shared_ffn // served.tensor_parallel, MIN_WIDTH)
            layer_ms = layer_ms + self.products_ms((2 * shared, model.hidden), (model.hidden, shared))
        return np.asarray(routed * layer_ms)

    def _all_reduces_ms(self) -> Array:
        model, tp, tokens = self.served.model, self.served.tensor_parallel, self.tables.tokens.astype(float)
        if tp == 1:
            return np.zeros(len(tokens))
        layer_ms = 2 * self.tables.all_reduce_ms(tp, tokens * model.hidden)
        if model.norms == "layer":
            layer_ms = layer_ms + 2 * self.tables.all_reduce_ms(tp, tokens)
        return np.asarray(model.layers * layer_ms)

    def _stages_ms(self) -> Array:
        """Sending hidden states from stage to stage; the stages of one iteration run one after another."""
        hops = self.served.pipeline_parallel - 1
        return np.asarray(
            hops * self.tables.tokens * 2 * self.served.model.hidden / self.gpu.kv_transfer_bytes_per_s * 1e3
        )

    def _streaming_ms(self) -> Array:
        """Time of the small kernels beyond their fixed time, for many tokens."""
        model, served = self.served.model, self.served
        width = model.ffn if model.experts is None else model.experts.ffn * model.experts.per_token
        qkv = (served.rank_heads + 2 * served.rank_kv_heads) * model.head_dim
        values = 2 * 4 * model.hidden + 2 * qkv + 3 * width / served.tensor_parallel
        bytes_per_s = STREAMING_EFFICIENCY * self.gpu.memory_bandwidth_bytes_per_s
        return np.maximum(2 * values * model.layers * self.tables.tokens / bytes_per_s * 1e3 - self.fixed_ms, 0.0)

    @property
    def fixed_ms(self) -> float:
        """Fixed time of the small kernels of all layers."""
        model = self.served.model
        per_layer = SMALL_KERNELS + (NORM_KERNELS if model.norms != "none" else 0)
        if self.served.dense_tier == "FP4":
            per_layer += FP4_KERNELS
        return per_layer * model.layers * SMALL_KERNEL_US / 1e3

    def head_ms(self) -> Array:
        """The LM head in 16 bits."""
        model = self.served.model
        rows = -(-model.vocabulary // self.served.tensor_parallel)
        return self._on_this_memory(self.tables.product_ms("bfloat16", rows, model.hidden), 2.0 * rows * model.hidden)
