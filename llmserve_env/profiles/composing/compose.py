"""A profile of any model on any card with published timings, in all precisions that were timed and fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.aiconfigurator import package_version
from llmserve_env.profiles.composing.attention import CONTEXT_KNOTS, PAIR_KNOTS
from llmserve_env.profiles.composing.kernel_tables import KernelTables
from llmserve_env.profiles.composing.kernels import kernels_per_layer
from llmserve_env.profiles.composing.rank import Rank
from llmserve_env.profiles.composing.served import Served
from llmserve_env.profiles.composing.systems import SYSTEMS
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.memory import check_card
from llmserve_env.profiles.naming import profile_name
from llmserve_env.profiles.schema import DecodeAttention, Gpu, Model, Parallelism, Profile, Provenance, Tier, TimeCurve
from llmserve_env.profiles.store import build_profile

HEAD_ROWS = 512
"""Rows of the LM head up to which its growth is taken."""
LOGITS_BYTES = 2 + 4 + 4
"""A logit in 16 bits, its 32-bit copy, and the sampler's 32-bit probability."""
CURVE_TOLERANCE = 0.003
"""Knots whose time lies this close to the line between their neighbours are left out."""


def compose_profile(gpu_name: str, served: Served, date: str, tiers: Sequence[str] = ()) -> Profile:
    """The profile of one replica in the tier of `served`, or in those of `tiers` that were timed and fit the card."""
    if gpu_name not in SYSTEMS:
        raise ProfileError(f"gpu {gpu_name!r} has no published timings; choose one of {', '.join(SYSTEMS)}")
    gpu, tables = GPUS[gpu_name], kernel_tables(gpu_name)
    tables.notes.clear()
    found, refused = {}, []
    for name in tiers or (served.weights,):
        rank = Rank(replace(served, weights=name), tables, gpu)
        try:
            check_card(gpu_name, rank.served)
            found[name] = _tier(rank)
        except ProfileError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return build_profile(
        name=profile_name(gpu_name, served),
        gpu=_with_peaks(gpu, list(found)),
        model=model_facts(served),
        tiers=found,
        parallelism=Parallelism(
            tensor_parallel=served.tensor_parallel,
            pipeline_parallel=served.pipeline_parallel,
            expert_parallel=served.expert_parallel,
            data_parallel_attention=served.data_parallel_attention,
        ),
        kv_cache=served.kv_cache,
        provenance=_provenance(tables, date),
    )


@cache
def kernel_tables(gpu_name: str) -> KernelTables:
    """The tables of a card, read once."""
    return KernelTables(SYSTEMS[gpu_name])


def _with_peaks(gpu: Gpu, tiers: Sequence[str]) -> Gpu:
    """The card with the peaks of these tiers; weights that it expands run at its 16-bit peak."""
    peaks = gpu.peak_flops_per_s
    return gpu.model_copy(
        update={"peak_flops_per_s": {name: peaks.get(name, peaks["FP16"]) for name in ("FP16", *tiers)}}
    )


def model_facts(served: Served) -> Model:
    """The model section of a profile: the share of one GPU."""
    model, pp = served.model, served.pipeline_parallel
    return Model(
        name=model.name,
        linear_parameters=model.active_parameters // (served.tensor_parallel * pp),
        attention_flops_per_pair=4 * model.full_layers * served.rank_heads * model.head_dim,
        kv_bytes_per_token=served.kv_bytes_per_token,
        activation_bytes_per_token=served.activation_bytes_per_token,
        logits_bytes_per_sequence=LOGITS_BYTES * model.vocabulary,
        layers=served.rank_layers,
        kernels_per_layer=kernels_per_layer(served),
    )


def _tier(rank: Rank) -> Tier:
    tokens, head_ms, attention = rank.tables.tokens, rank.head_ms(), rank.attention
    last = int(np.searchsorted(tokens, HEAD_ROWS))
    head_row_ms = float(head_ms[last] - head_ms[0]) / float(tokens[last] - tokens[0])
    flops = np.array(PAIR_KNOTS, dtype=float) * model_facts(rank.served).attention_flops_per_pair
    computed_ms = flops / rank.gpu.peak_flops_per_s["FP16"] * 1e3
    context = _curve(CONTEXT_KNOTS, rank.context_ms())
    experts = f", {rank.expert_type} experts" if rank.served.model.experts else ""
    return Tier(
        origin="composed",
        kernel=f"{rank.product_type} products{experts}, as timed in vLLM {rank.tables.system.version}",
        overhead_us=round((rank.fixed_ms + rank.gaps_ms + float(head_ms[0])) * 1e3, 2),
        per_sequence_us=round(attention.per_sequence * 1e3, 4),
        per_decode_token_us=round(head_row_ms * 1e3, 4),
        per_prefill_token_us=round(attention.per_prefill_token * 1e3, 4),
        gemm_tokens=_thinned(_curve(tuple(tokens.tolist()), rank.tokens_ms())),
        decode_attention=(DecodeAttention(query_tokens=1, origin="composed", context_tokens=context),),
        prefill_attention_pairs=_curve(PAIR_KNOTS, np.maximum(attention.pairs, computed_ms)),
        weight_bytes=rank.served.weight_bytes,
    )


def _provenance(tables: KernelTables, date: str) -> Provenance:
    system = tables.system
    return Provenance(
        source=f"aiconfigurator-core {package_version()} (PyPI, NVIDIA), tables {system.folder}, vLLM {system.version}",
        measured_by="NVIDIA AIConfigurator collectors; composed by llmserve profile compose",
        date=date,
        licence="Apache-2.0",
        notes=tuple(tables.notes),
    )


def _curve(x: tuple[int, ...], ms: Array) -> TimeCurve:
    return TimeCurve(x=x, ms=tuple(round(float(v), 4) for v in np.maximum.accumulate(ms)))


def _thinned(curve: TimeCurve) -> TimeCurve:
    """The curve without knots that the line between their neighbours already meets."""
    kept = [0]
    x, ms = np.array(curve.x, dtype=float), np.array(curve.ms)
    while kept[-1] < len(x) - 1:
        start, end = kept[-1], kept[-1] + 1
        for candidate in range(start + 2, len(x)):
            between = np.interp(x[start:candidate], x[[start, candidate]], ms[[start, candidate]])
            if np.any(np.abs(between - ms[start:candidate]) > CURVE_TOLERANCE * ms[start:candidate]):
                break
            end = candidate
        kept.append(end)
    return TimeCurve(x=tuple(curve.x[i] for i in kept), ms=tuple(curve.ms[i] for i in kept))
