"""The profiles of both suites of tasks: Llama-3-8B on one GPU, in INT8 and INT4 too, with a draft model.

They are frozen with the tasks. `compose.py` composes any model, in the precisions that engines serve today.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from llmserve_env.engine.tiers import TIERS_BY_NAME
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import aiconfigurator as tables
from llmserve_env.profiles.aiconfigurator import GemmTable
from llmserve_env.profiles.architectures import Architecture, model_and_draft
from llmserve_env.profiles.composing.kernels import SMALL, SMALL_KERNEL_US, STREAMING_EFFICIENCY
from llmserve_env.profiles.curves import CurveTerm, relative_nnls, values_at_knots
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.roofline import Roofline
from llmserve_env.profiles.schema import (
    DecodeAttention,
    Draft,
    Gpu,
    Model,
    Profile,
    Provenance,
    Tier,
    TimeCurve,
)
from llmserve_env.profiles.store import build_profile, load_profile

Floats = NDArray[np.float64]
SUITE_TIERS = ("FP16", "INT8", "INT4")
DEQUANTISING_SLOWDOWN = 1.12
"""Time of a compute-bound W4A16 product relative to bf16, from the A100 tables at 8,192 tokens."""
VERIFICATION_FACTORS = {2: 1.05, 3: 1.05, 5: 1.14, 9: 1.26}
"""Query tokens -> time of decode attention relative to one, at 262,144 context tokens in our H200 measurements."""
CONTEXT_KNOTS = (1, 512, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
PAIR_KNOTS = (1, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23, 2**25, 2**27)
MAX_SEQUENCES = 512
MIN_CONTEXT = 128
"""Below this, a decode kernel takes its minimum time, which a curve over total context cannot express."""
SCALED_FROM = {"a100-40gb": "a100-80gb"}
"""Cards without their own tables, and the card with the same chip from whose tables they are scaled."""
SISTERS = {("h100-80gb", "INT4"): "h200-141gb"}
"""Tiers without published timings, taken from our measurement of a card with the same chip and faster memory."""


@dataclass(frozen=True)
class Composer:
    """Inputs shared by all tiers of one card and model."""

    gpu_name: str
    gpu: Gpu
    tables: tables.TableSet
    architecture: Architecture
    memory_factor: float
    """How much longer memory-bound work takes here than on the card the tables were made on."""

    def gemm(self, tier: str, architecture: Architecture) -> tuple[NDArray[np.int64], Floats]:
        """Token counts, and milliseconds of all layers' matrix products and of the small kernels between them."""
        if (self.gpu_name, tier) in SISTERS:
            return self._sister_gemm(SISTERS[self.gpu_name, tier], tier)
        table = tables.gemm_table(self.tables, tier)
        products = np.sum([self._product_ms(table, tier, n, k) for n, k in architecture.linears], axis=0)
        return table.m, _rising(architecture.layers * products + self._streaming_excess_ms(architecture, table.m))

    def _product_ms(self, table: GemmTable, tier: str, n: int, k: int) -> Floats:
        """Times of one product on this card in this tier; derived by the roofline if it was not timed."""
        times = table.ms(n, k)
        timed = tier if tier in self.tables.quantized else "FP16"
        weights_ms = (
            n
            * k
            * TIERS_BY_NAME[timed].bytes_per_weight
            / table.streaming_bytes_per_ms(TIERS_BY_NAME[timed].bytes_per_weight)
        )
        roofline = Roofline.of(table.m, times, weights_ms)
        if timed == tier:
            return _rising(roofline.with_memory_slower(times, self.memory_factor))
        return roofline.with_smaller_weights(
            self.memory_factor * TIERS_BY_NAME[tier].bytes_per_weight / 2, DEQUANTISING_SLOWDOWN
        )

    def _sister_gemm(self, sister: str, tier: str) -> tuple[NDArray[np.int64], Floats]:
        """A sister card's measured curve with its memory-bound share slowed by the ratio of bandwidths."""
        profile = load_profile(f"{sister}.{self.architecture.name}")
        measured = next(t for name, t in profile.tiers.items() if name == tier).gemm_tokens
        tokens, times = np.array(measured.x, dtype=np.int64), np.array(measured.ms)
        bandwidth = profile.gpu.memory_bandwidth_bytes_per_s
        weights_ms = self.architecture.linear_parameters * TIERS_BY_NAME[tier].bytes_per_weight / bandwidth * 1e3
        roofline = Roofline.of(tokens, times, weights_ms)
        return tokens, _rising(roofline.with_memory_slower(times, bandwidth / self.gpu.memory_bandwidth_bytes_per_s))

    def lm_head(self, architecture: Architecture) -> tuple[NDArray[np.int64], Floats]:
        """Rows and milliseconds of the LM head, in 16 bits in every tier."""
        table = tables.gemm_table(self.tables, "FP16")
        return table.m, self._product_ms(table, "FP16", architecture.vocabulary, architecture.hidden)

    def _streaming_excess_ms(self, architecture: Architecture, tokens: NDArray[np.int64]) -> Floats:
        """Time of norms, rotary embedding, cache write and SwiGLU beyond their fixed time, for many tokens."""
        qkv = architecture.linears[0][0]
        values = 2 * 4 * architecture.hidden + 2 * qkv + 3 * architecture.ffn
        bytes_per_s = STREAMING_EFFICIENCY * self.gpu.memory_bandwidth_bytes_per_s
        streaming_ms = 2 * values * architecture.layers * tokens / bytes_per_s * 1e3
        return np.asarray(np.maximum(streaming_ms - self._small_kernels_us(architecture) / 1e3, 0.0), dtype=float)

    @staticmethod
    def _small_kernels_us(architecture: Architecture) -> float:
        return SMALL * architecture.layers * SMALL_KERNEL_US

    def decode_attention(self) -> tuple[TimeCurve, float]:
        """Milliseconds over total context, and microseconds per sequence, all layers."""
        sequences, context, ms = tables.attention_rows(self.tables, self.architecture, "generation")
        keep = (sequences <= MAX_SEQUENCES) & (context >= MIN_CONTEXT)
        sequences, context, ms = sequences[keep], context[keep], ms[keep]
        read_ms = sequences * context * self.architecture.kv_bytes_per_token / self._streaming_bytes_per_ms()
        here_ms = ms * self.architecture.layers + (self.memory_factor - 1.0) * read_ms
        columns = np.hstack([sequences[:, None], CurveTerm(CONTEXT_KNOTS).columns(sequences * context)])
        fitted = relative_nnls(columns, here_ms)
        return _curve(CONTEXT_KNOTS, values_at_knots(fitted[1:])), float(fitted[0]) * 1e3

    def _streaming_bytes_per_ms(self) -> float:
        return tables.gemm_table(self.tables, "FP16").streaming_bytes_per_ms(TIERS_BY_NAME["FP16"].bytes_per_weight)

    def prefill_attention(self) -> TimeCurve:
        """Milliseconds over attended pairs, all layers."""
        sequences, tokens, ms = tables.attention_rows(self.tables, self.architecture, "context")
        keep = (tokens >= 64) & (sequences <= 8)
        pairs = sequences * tokens * (tokens + 1) / 2
        fitted = relative_nnls(CurveTerm(PAIR_KNOTS).columns(pairs[keep]), ms[keep] * self.architecture.layers)
        return _curve(PAIR_KNOTS, values_at_knots(fitted))

    def tier(self, name: str) -> Tier:
        """One quantization tier."""
        tokens, gemm_ms = self.gemm(name, self.architecture)
        rows, head_ms = self.lm_head(self.architecture)
        attention, attention_us = self.decode_attention()
        last = int(np.searchsorted(rows, MAX_SEQUENCES))
        head_row_us = float(head_ms[last] - head_ms[0]) / float(rows[last] - rows[0]) * 1e3
        return Tier(
            origin="derived" if _is_derived(self.tables, name) else "composed",
            kernel=_kernel(self, name),
            overhead_us=_round(self._small_kernels_us(self.architecture) + float(head_ms[0]) * 1e3),
            per_sequence_us=_round(attention_us),
            per_decode_token_us=_round(head_row_us),
            per_prefill_token_us=0.0,
            gemm_tokens=_curve(tokens, gemm_ms),
            decode_attention=_verification(attention),
            prefill_attention_pairs=self.prefill_attention(),
            weight_bytes=self.architecture.weight_bytes(name),
        )

    def draft(self, architecture: Architecture) -> Draft:
        """The draft model; its LM head runs for every token it proposes, so the head is part of the curve."""
        tokens, gemm_ms = self.gemm("FP16", architecture)
        _, head_ms = self.lm_head(architecture)
        attention, _ = self.decode_attention()
        share = architecture.kv_bytes_per_token / self.architecture.kv_bytes_per_token
        slope_ms = (attention.ms[-1] - attention.ms[-2]) / (attention.x[-1] - attention.x[-2])
        floor_us = attention.ms[0] * 1e3 * architecture.layers / self.architecture.layers
        return Draft(
            name=architecture.name,
            origin="composed",
            overhead_us=_round(self._small_kernels_us(architecture) + floor_us),
            gemm_tokens=_curve(tokens, gemm_ms + head_ms),
            per_context_token_us=round(slope_ms * 1e3 * share, 7),
            weight_bytes=architecture.weight_bytes("FP16"),
        )


def compose(gpu_name: str, model_name: str, date: str, suffix: str = "") -> Profile:
    """A profile for one card and model from the installed aiconfigurator-core tables, named `<gpu><suffix>.<model>`."""
    source = SCALED_FROM.get(gpu_name, gpu_name)
    if source not in tables.TABLES:
        known = ", ".join(sorted({*tables.TABLES, *SCALED_FROM}))
        raise ProfileError(f"no published timings for GPU {gpu_name!r}; choose one of {known}")
    card, (architecture, draft) = GPUS[gpu_name], model_and_draft(model_name)
    gpu = card.model_copy(update={"peak_flops_per_s": {name: card.peak_flops_per_s[name] for name in SUITE_TIERS}})
    factor = GPUS[source].memory_bandwidth_bytes_per_s / gpu.memory_bandwidth_bytes_per_s
    composer = Composer(gpu_name, gpu, tables.TABLES[source], architecture, factor)
    return build_profile(
        name=f"{gpu_name}{suffix}.{model_name}",
        gpu=gpu,
        model=Model.of(architecture),
        tiers={name: composer.tier(name) for name in SUITE_TIERS},
        draft=composer.draft(draft),
        provenance=_provenance(gpu_name, composer, date),
    )


def _verification(attention: TimeCurve) -> tuple[DecodeAttention, ...]:
    """Verification reads keys and values once; packing the queries costs as much as on the H200."""
    rest = (
        DecodeAttention(
            query_tokens=q, origin="derived", context_tokens=_curve(attention.x, np.asarray(attention.ms) * factor)
        )
        for q, factor in VERIFICATION_FACTORS.items()
    )
    return (DecodeAttention(query_tokens=1, origin="composed", context_tokens=attention), *rest)


def _is_derived(table_set: tables.TableSet, tier: str) -> bool:
    dtype = table_set.gemm_source(tier)[1]
    return (tier == "INT8" and dtype == "fp8") or (tier != "FP16" and dtype == "bfloat16")


def _kernel(composer: Composer, tier: str) -> str:
    if (composer.gpu_name, tier) in SISTERS:
        sister = SISTERS[composer.gpu_name, tier]
        return f"W4A16, derived from our {sister} measurement: its memory-bound share scaled by bandwidth"
    frameworks, dtype = composer.tables.gemm_source(tier)
    timed = f"{dtype} GEMM, fastest of {', '.join(' '.join(f) for f in frameworks)}"
    if tier != "FP16" and dtype == "bfloat16":
        return (
            f"W4A16, derived from {timed}: weights a quarter of the bytes, {DEQUANTISING_SLOWDOWN} x the compute time"
        )
    if tier == "FP8":
        return f"W8A8: {timed}; activation quantization fused"
    if dtype == "fp8":
        return f"W8A8, derived from {timed}: the same bytes and peak rate as INT8; activation quantization fused"
    names = {"sq": "W8A8 (SmoothQuant), activation quantization fused", "int4_wo": "W4A16, weights only"}
    return f"{names.get(dtype, 'W16A16')}: {timed}"


def _provenance(gpu_name: str, composer: Composer, date: str) -> Provenance:
    notes = [
        "GEMM and attention kernels as timed by NVIDIA; norms, rotation, cache write and SwiGLU from bandwidth.",
        "The LM head is in overhead_us (its weights) and per_decode_token_us (its rows); no CPU time of an engine.",
        "Verification (q > 1): the q = 1 curve times the ratio measured on an H200.",
        "Price: mid-range on-demand list price of 2026.",
    ]
    if composer.memory_factor != 1.0:
        notes.append(
            f"Timed on the {SCALED_FROM[gpu_name]} card; memory-bound parts scaled by {composer.memory_factor:.3f}."
        )
    return Provenance(
        source=f"aiconfigurator-core {tables.package_version()} (PyPI, NVIDIA), tables {composer.tables.system}",
        measured_by="NVIDIA AIConfigurator collectors; composed by llmserve profile import --source aiconfigurator",
        date=date,
        licence="Apache-2.0",
        software=dict(composer.tables.frameworks),
        notes=tuple(notes),
    )


def _rising(times: Floats) -> Floats:
    return np.asarray(isotonic_regression(times).x, dtype=float)


def _curve(x: tuple[int, ...] | NDArray[np.int64], ms: Floats) -> TimeCurve:
    return TimeCurve(x=tuple(int(n) for n in x), ms=tuple(round(float(v), 5) for v in ms))


def _round(us: float) -> float:
    return round(us, 3)
