"""Attention of all layers on one GPU, from timed layers: over context for decodes, over pairs for prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.profiles.composing.kernel_tables import KernelTables
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.curves import CurveTerm, relative_nnls, values_at_knots

CONTEXT_KNOTS = (1, 512, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576, 4194304)
PAIR_KNOTS = (1, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23, 2**25, 2**27)
TOKEN_KNOTS = (1, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
MAX_SEQUENCES = 1024
MAX_CONTEXT = 8_000_000
MIN_CONTEXT = 128
"""Below this, a decode kernel takes its minimum time, which a curve over total context cannot express."""
MIN_PROMPT, MAX_PROMPTS = 64, 8
LATENT_KERNEL_MS = 0.008
"""The least time of a latent-attention kernel: 33 us of the whole module on a B200, less its products."""
FEW = np.array([1, 2, 4, 8, 16, 32, 64], dtype=float)
KV_TYPES = {"fp16": "bfloat16", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class AttentionTimes:
    """Milliseconds of all layers on one GPU."""

    per_sequence: float
    per_prefill_token: float
    tokens: Array
    """Part that depends on the tokens of an iteration alone, over the tables' token counts."""
    context: Array
    """At CONTEXT_KNOTS."""
    pairs: Array
    """At PAIR_KNOTS."""


def grouped_attention(served: Served, tables: KernelTables) -> AttentionTimes:
    """Multi-head or grouped-query attention, some layers of which may see a window only."""
    model, kv = served.model, KV_TYPES[served.kv_cache]
    heads = (served.rank_heads, served.rank_kv_heads, model.head_dim, kv)
    per_sequence, context = _decode(tables.attention_rows("generation", *heads))
    pairs = _prefill(tables.attention_rows("context", *heads))
    windowed_sequence = windowed_prompt = windowed_floor = 0.0
    if model.windowed_layers:
        rows = tables.attention_rows("generation", *heads, window=model.window)
        rows = rows[(rows.step >= model.window) & (rows.batch_size <= MAX_SEQUENCES)]
        fitted = relative_nnls(np.column_stack([rows.batch_size, np.ones(len(rows))]), rows.latency.to_numpy(float))
        windowed_sequence, windowed_floor = (model.windowed_layers * float(value) for value in fitted)
        rows = tables.attention_rows("context", *heads, window=model.window)
        rows = rows[rows.isl >= 1024]
        windowed_prompt = model.windowed_layers * float(np.median(rows.latency / (rows.batch_size * rows.isl)))
    return AttentionTimes(
        per_sequence=model.full_layers * per_sequence + windowed_sequence,
        per_prefill_token=windowed_prompt,
        tokens=np.full(len(tables.tokens), windowed_floor),
        context=model.full_layers * context,
        pairs=model.full_layers * pairs,
    )


def _decode(rows: Any) -> tuple[float, Array]:
    sequences, context = rows.batch_size.to_numpy(float), rows.step.to_numpy(float) + 1
    keep = (sequences <= MAX_SEQUENCES) & (context >= MIN_CONTEXT) & (sequences * context <= MAX_CONTEXT)
    columns = np.hstack([sequences[keep][:, None], CurveTerm(CONTEXT_KNOTS).columns((sequences * context)[keep])])
    fitted = relative_nnls(columns, rows.latency.to_numpy(float)[keep])
    return float(fitted[0]), values_at_knots(fitted[1:])


def _prefill(rows: Any) -> Array:
    prompts, tokens = rows.batch_size.to_numpy(float), rows.isl.to_numpy(float)
    keep = (tokens >= MIN_PROMPT) & (prompts <= MAX_PROMPTS)
    pairs = (prompts * tokens * (tokens + 1) / 2)[keep]
    return values_at_knots(relative_nnls(CurveTerm(PAIR_KNOTS).columns(pairs), rows.latency.to_numpy(float)[keep]))


def latent_attention(served: Served, tables: KernelTables, dtype: str, products_ms: Array) -> AttentionTimes:
    """Latent attention with its projections, whose products take `products_ms` over the tables' token counts.

    The modules of some cards were timed with every kernel launched by itself; the least time of such a module is
    brought down to that of its products and kernel, and all its times by as much.
    """
    kv, layers = KV_TYPES[served.kv_cache], served.model.layers
    decodes = tables.latent_rows("generation", served.rank_heads, kv, dtype)
    prompts = tables.latent_rows("context", served.rank_heads, kv, dtype)
    decodes = decodes[decodes.batch_size * decodes.step <= MAX_CONTEXT]
    prompts = prompts[(prompts.batch_size * prompts.isl <= TOKEN_KNOTS[-1]) & (prompts.isl >= 16)]
    least_ms = float(products_ms[0]) + LATENT_KERNEL_MS
    excess_ms = max(0.0, float(decodes.latency.min()) - least_ms)
    if excess_ms > 0.1 * least_ms:
        tables.note(f"latent attention without {excess_ms * 1e3:.0f} us of launching per layer")
    few_ms = np.interp(FEW, tables.tokens, products_ms) + LATENT_KERNEL_MS
    timed_ms = np.concatenate([decodes.latency, prompts.latency]) - excess_ms
    no_prompts, no_decodes = np.zeros(len(prompts)), np.zeros(len(decodes))
    tokens = np.concatenate([FEW, decodes.batch_size, prompts.batch_size * prompts.isl])
    context = np.concatenate([FEW * MIN_CONTEXT, decodes.batch_size * decodes.step, no_prompts])
    pairs = np.concatenate([0 * FEW, no_decodes, prompts.batch_size * prompts.isl * (prompts.isl + 1) / 2])
    parts = ((TOKEN_KNOTS, tokens), (CONTEXT_KNOTS, context), (PAIR_KNOTS, pairs))
    columns = np.hstack([CurveTerm(knots).columns(x.astype(float)) for knots, x in parts])
    fitted = relative_nnls(columns, np.concatenate([few_ms, np.maximum(timed_ms, least_ms)]))
    first, second = len(TOKEN_KNOTS), len(TOKEN_KNOTS) + len(CONTEXT_KNOTS)
    over_tokens = values_at_knots(fitted[:first])
    return AttentionTimes(
        per_sequence=0.0,
        per_prefill_token=0.0,
        tokens=layers * np.interp(tables.tokens, TOKEN_KNOTS, over_tokens),
        context=layers * values_at_knots(fitted[first:second]),
        pairs=layers * values_at_knots(fitted[second:]),
    )
