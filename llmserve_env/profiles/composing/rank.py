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
from llmserve_env.profiles.composing.kernels import (
    SMALL_KERNEL_US,
    STREAMING_EFFICIENCY,
    kernels_per_layer,
    small_kernels,
)
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.model_spec import Experts
from llmserve_env.profiles.roofline import Roofline
from llmserve_env.profiles.schema import Gpu

KERNEL_GAP_US = 0.66
"""Between two kernels of a captured graph, which are timed one at a time: iterations of 1 to 8 sequences in vLLM on our
H200 (recordings/h200) take 0.21 ms longer than the 320 kernels of Llama-3-8B."""
SUSTAINED_TOKENS = (256, 1024)
"""Between these the products of an iteration become bound by computing."""
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
    def num_sizes(self) -> int:
        """Token counts of every curve."""
        return len(self.tables.tokens)

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
        ms = np.sum([self.tables.product_ms(self.product_type, n, k) for n, k in shapes], axis=0)
        return np.asarray(ms * self._sustained if self.product_type == "bfloat16" else ms)

    @property
    def _sustained(self) -> Array:
        """How much longer 16-bit products take in a row, over the tables' token counts: not at all while few."""
        factor = self.tables.system.sustained_factor
        return np.interp(self.tables.tokens, SUSTAINED_TOKENS, (1.0, factor))

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
        total = self._attention_products_ms() + self._feed_forward_ms() + self._experts_ms() + self.all_reduces_ms()
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
        return model.dense_layers * self._block_ms(model.ffn) if model.dense_layers else np.zeros(self.num_sizes)

    def _block_ms(self, width: int) -> Array:
        """A gated feed-forward block of one layer."""
        hidden, ffn = self.served.model.hidden, max(width // self.served.tensor_parallel, MIN_WIDTH)
        return self.products_ms((2 * ffn, hidden), (hidden, ffn))

    def _experts_ms(self) -> Array:
        model = self.served.model
        if model.experts is None:
            return np.zeros(self.num_sizes)
        e = model.experts
        layer_ms = self._routed_ms(e)
        layer_ms = layer_ms + self.tables.product_ms("bfloat16", max(e.count, MIN_WIDTH), model.hidden)
        if e.shared_ffn:
            layer_ms = layer_ms + self._block_ms(e.shared_ffn)
        return np.asarray((model.layers - model.dense_layers) * layer_ms)

    def _routed_ms(self, e: Experts) -> Array:
        """The experts that tokens are sent to; if every token goes to all of them, they are one block."""
        served = self.served
        if e.per_token == e.count:
            return self._block_ms(e.count * e.ffn)
        split = served.expert_ways // served.expert_parallel
        shape = (served.model.hidden, e.ffn, e.per_token, e.count)
        return self.tables.experts_ms(self.expert_type, shape, split, served.expert_parallel)

    def all_reduces_ms(self) -> Array:
        """Agreeing on the sums of all layers among the GPUs."""
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
        return small_kernels(self.served) * self.served.model.layers * SMALL_KERNEL_US / 1e3

    @property
    def gaps_ms(self) -> float:
        """From the end of each kernel to the start of the next."""
        return kernels_per_layer(self.served) * self.served.model.layers * KERNEL_GAP_US / 1e3

    def head_ms(self) -> Array:
        """The LM head in 16 bits."""
        model = self.served.model
        rows = -(-model.vocabulary // self.served.tensor_parallel)
        return self._on_this_memory(self.tables.product_ms("bfloat16", rows, model.hidden), 2.0 * rows * model.hidden)
