"""How many kernels a layer consists of, and how long the small ones take."""

from __future__ import annotations

from llmserve_env.profiles.composing.served import Served

SMALL_KERNEL_US = 1.75
"""Fixed time of a small kernel: the mean in our H200 measurements (machine.small_kernel_us)."""
STREAMING_EFFICIENCY = 0.8
"""Share of peak bandwidth that elementwise kernels reach; aiconfigurator-core's constant."""
SMALL = 5
"""Two residual-and-norm kernels, rotary embedding, KV-cache write, SwiGLU."""
QUERY_AND_KEY_NORMS = 2
ROUNDING_TO_4_BITS = 4
"""Of the input of each product, which no other kernel does on the way."""
PRODUCTS_AND_ATTENTION = 5
"""QKV, output, gate and up, down; and attention."""
LATENT = 5
"""Two compressions with a norm each and two batched products, in place of the QKV product."""
DENSE_FEED_FORWARD, EXPERTS = 3, 8
"""Two products with SwiGLU; or router, top-k, counting and sorting of tokens, two products, SwiGLU, weighted sum."""


def small_kernels(served: Served) -> int:
    """Kernels of a layer that hardly compute."""
    norms = QUERY_AND_KEY_NORMS if served.model.norms != "none" else 0
    return SMALL + norms + (ROUNDING_TO_4_BITS if served.dense_tier == "FP4" else 0)


def kernels_per_layer(served: Served) -> int:
    """All kernels of a layer, as an engine without captured graphs launches them one by one."""
    count = small_kernels(served) + PRODUCTS_AND_ATTENTION
    if served.model.latent is not None:
        count += LATENT
    experts = served.model.experts
    if experts is None:
        return count
    if experts.per_token == experts.count:
        # Nothing is chosen or sorted: one dense block behind its router.
        return count + 1
    return count - DENSE_FEED_FORWARD + EXPERTS
