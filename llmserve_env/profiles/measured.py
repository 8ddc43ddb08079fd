"""Make a profile from the profiler's measurements: fitted to training points, evaluated on held-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from llmserve_env.engine.costs import GpuCosts
from llmserve_env.engine.tiers import TIER_NAMES, TIER_NUMBERS, TIERS_BY_NAME
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.architectures import Architecture, model_and_draft
from llmserve_env.profiles.conversion import tier_costs
from llmserve_env.profiles.curves import CurveTerm, relative_nnls, values_at_knots
from llmserve_env.profiles.fitting import FittedTier, Floats, fit, fit_products
from llmserve_env.profiles.gpus import GPUS
from llmserve_env.profiles.measurements import Measurements, Point
from llmserve_env.profiles.prediction import predict_target_ps
from llmserve_env.profiles.schema import (
    DecodeAttention,
    Draft,
    FitError,
    Gpu,
    Model,
    Profile,
    Provenance,
    Tier,
    TierName,
    TimeCurve,
)
from llmserve_env.profiles.store import build_profile
from llmserve_env.units import PS_PER_MS

KERNELS: dict[TierName, str] = {
    "FP16": "W16A16: cuBLAS bf16 products, cuDNN attention with grouped query heads, fused Triton norms and SwiGLU",
    "INT8": "W8A8: per-token activation quantization fused into the norm and SwiGLU kernels; Triton INT8 products with "
    "the scales in the epilogue, or cuBLASLt INT8, whichever is faster for shape and batch",
    "FP8": "W8A8: per-token activation quantization fused into the norm and SwiGLU kernels; torch._scaled_mm with a "
    "scale per row, or Triton FP8 products, whichever is faster for shape and batch",
    "INT4": "W4A16, groups of 128: Triton products that expand weights in registers; PyTorch's packed product for few "
    "tokens and expansion followed by cuBLAS for large batches where those are faster",
}
DRAFT_KNOTS = (1, 4, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192)


def measured_profile(gpu_name: str, model_name: str, measurements: Sequence[Measurements]) -> Profile:
    """Fit a profile to one or more measurement files of one card and model."""
    architecture, draft = model_and_draft(model_name)
    points = [p for m in measurements for p in m.points]
    target = [p for p in points if p.model == model_name]
    fitted = fit([p.iteration() for p in training_points(target)])
    machine = measurements[0].machine
    names = [name for name in TIER_NAMES if name in fitted]
    overhead_ms = _overhead_ms(architecture, machine)
    profile = build_profile(
        name=f"{gpu_name}.{model_name}",
        gpu=_gpu(gpu_name, machine, names),
        model=Model.of(architecture),
        tiers={name: _tier(name, fitted[name], architecture, overhead_ms) for name in names},
        draft=_draft(draft, [p for p in points if p.model == draft.name], int(machine["device_copy_bytes_per_s"])),
        provenance=_provenance(measurements),
    )
    tiers = {
        name: tier.model_copy(update={"held_out": held_out_error(profile, name, target)})
        for name, tier in profile.tiers.items()
    }
    return profile.model_copy(update={"tiers": tiers})


def with_tiers(base: Profile, measurements: Sequence[Measurements]) -> Profile:
    """The profile with tiers that were measured later; attention and the tiers it has stay as they are."""
    architecture, _ = model_and_draft(base.model.name)
    points = [p for m in measurements for p in m.points if p.model == base.model.name and p.tier not in base.tiers]
    names = [name for name in TIER_NAMES if any(p.tier == name for p in points)]
    if not names:
        raise ProfileError(
            f"the measurements hold no tier of {base.model.name} that {base.name} lacks; it has {', '.join(base.tiers)}"
        )
    like = next(iter(base.tiers.values()))
    machine = measurements[0].machine
    added = {name: _added_tier(base, name, like, points, architecture, machine) for name in names}
    notes = [*base.provenance.notes, f"{', '.join(names)} measured later, with the attention of the other tiers."]
    profile = build_profile(
        **{
            **base.model_dump(exclude={"format_version"}),
            "tiers": {**base.tiers, **added},
            "gpu": _with_peaks(base.gpu, names),
            "provenance": base.provenance.model_copy(update={"notes": tuple(notes)}),
        }
    )
    errors = {name: held_out_error(profile, name, points) for name in names}
    tiers = {n: t.model_copy(update={"held_out": errors[n]}) if n in errors else t for n, t in profile.tiers.items()}
    return profile.model_copy(update={"tiers": tiers})


def _added_tier(
    base: Profile,
    name: TierName,
    like: Tier,
    points: Sequence[Point],
    architecture: Architecture,
    machine: dict[str, Any],
) -> Tier:
    """A tier whose attention is that of `like`: the fit sees only what is left of each time without it."""
    attention = like.model_copy(
        update={
            "overhead_us": 0.0,
            "per_decode_token_us": 0.0,
            "per_prefill_token_us": 0.0,
            "gemm_tokens": TimeCurve(x=(0, 1), ms=(0.0, 0.0)),
        }
    )
    number = TIER_NUMBERS[name]
    costs = replace(base.costs(), tiers={number: tier_costs(attention)})
    own = [p for p in points if p.tier == name]
    rest = [replace(p.iteration(), ms=p.ms - predicted_ms(costs, p)) for p in training_points(own)]
    lines, (tokens, gemm_ms) = fit_products(rest)
    overhead_ms = _overhead_ms(architecture, machine)
    return Tier(
        origin="measured",
        kernel=KERNELS[name],
        overhead_us=round(overhead_ms * 1e3, 2),
        per_sequence_us=like.per_sequence_us,
        per_decode_token_us=_us(lines["per_decode_token"]),
        per_prefill_token_us=_us(lines["per_prefill_token"]),
        gemm_tokens=_curve(tokens, gemm_ms - overhead_ms),
        decode_attention=like.decode_attention,
        prefill_attention_pairs=like.prefill_attention_pairs,
        weight_bytes=architecture.weight_bytes(name),
    )


def _with_peaks(gpu: Gpu, names: Sequence[TierName]) -> Gpu:
    peaks = {name: TIERS_BY_NAME[name].peak * gpu.peak_flops_per_s["FP16"] for name in names}
    return gpu.model_copy(update={"peak_flops_per_s": {**gpu.peak_flops_per_s, **peaks}})


def training_points(points: Sequence[Point]) -> list[Point]:
    """The points to fit on: neither held out nor equal to a held-out point."""
    held_out = {p.key for p in points if p.held_out}
    return [p for p in points if p.key not in held_out]


def predicted_ms(costs: GpuCosts, point: Point) -> float:
    """The predicted time of a measured point, without the draft model, which is timed separately."""
    decode = [(point.sequences, point.context)] if point.sequences else []
    return predict_target_ps(costs, point.tier, decode, point.prefill, point.query_tokens - 1) / PS_PER_MS


def held_out_error(profile: Profile, tier: str, points: Sequence[Point]) -> FitError:
    """Relative error on the tier's held-out points."""
    held_out = [p for p in points if p.held_out and p.tier == tier]
    if not held_out:
        raise ProfileError(f"no held-out points for {tier}: measure with --held-out > 0")
    costs = profile.costs()
    return error_of([predicted_ms(costs, p) for p in held_out], [p.ms for p in held_out])


def error_of(predicted: Sequence[float], measured: Sequence[float]) -> FitError:
    """Median, 95th percentile and largest relative error, in per cent."""
    errors = np.abs(np.asarray(predicted) / np.asarray(measured) - 1.0) * 100
    low, high, top = (round(float(x), 2) for x in (np.median(errors), np.percentile(errors, 95), errors.max()))
    return FitError(points=len(errors), median_pct=low, p95_pct=high, max_pct=top)


def _overhead_ms(architecture: Architecture, machine: dict[str, Any]) -> float:
    """Small kernels as timed separately, plus the LM head at copy bandwidth; a fit cannot separate them from GEMM."""
    kernels, copy_rate = machine["small_kernel_us"], machine["device_copy_bytes_per_s"]
    per_layer_us = 2 * kernels["add_norm"] + kernels["rotate"] + kernels["write_cache"] + kernels["swiglu"]
    head_bytes = 2 * architecture.embedding_parameters
    return float(per_layer_us * architecture.layers / 1e3 + head_bytes / copy_rate * 1e3)


def _tier(name: TierName, fitted: FittedTier, architecture: Architecture, overhead_ms: float) -> Tier:
    constant_ms = fitted.lines["overhead"] - overhead_ms
    tokens, gemm_ms = fitted.gemm
    return Tier(
        origin="measured",
        kernel=KERNELS[name],
        overhead_us=round(overhead_ms * 1e3, 2),
        per_sequence_us=_us(fitted.lines["per_sequence"]),
        per_decode_token_us=_us(fitted.lines["per_decode_token"]),
        per_prefill_token_us=_us(fitted.lines["per_prefill_token"]),
        gemm_tokens=_curve(tokens, gemm_ms + constant_ms),
        decode_attention=tuple(
            DecodeAttention(query_tokens=q, origin="measured", context_tokens=_curve(*fitted.decode_attention[q]))
            for q in sorted(fitted.decode_attention)
        ),
        prefill_attention_pairs=_curve(*fitted.prefill_attention),
        weight_bytes=architecture.weight_bytes(name),
    )


def _draft(architecture: Architecture, points: Sequence[Point], copy_bytes_per_s: int) -> Draft:
    if not points:
        raise ProfileError(f"the measurements hold no points of the draft model {architecture.name}")
    iterations = [p.iteration() for p in points]
    tokens = np.array([i.decode_tokens + i.prefill_tokens for i in iterations], dtype=float)
    context = np.array([i.context_tokens for i in iterations], dtype=float)
    columns = np.hstack([context[:, None], CurveTerm(DRAFT_KNOTS).columns(tokens)])
    fitted = relative_nnls(columns, np.array([i.ms for i in iterations]))
    ms = values_at_knots(fitted[1:])
    weights_ms = architecture.weight_bytes("FP16") / copy_bytes_per_s * 1e3
    overhead_ms = max(0.0, float(ms[0]) - weights_ms)
    return Draft(
        name=architecture.name,
        origin="measured",
        overhead_us=_us(overhead_ms),
        gemm_tokens=_curve(DRAFT_KNOTS, ms - overhead_ms),
        per_context_token_us=round(float(fitted[0]) * 1e3, 7),
        weight_bytes=architecture.weight_bytes("FP16"),
    )


def _gpu(name: str, machine: dict[str, Any], tiers: Sequence[TierName]) -> Gpu:
    """The card's data, with the sizes and rates measured on the machine."""
    if name not in GPUS:
        raise ProfileError(f"unknown GPU {name!r}: add its peaks and price to gpus.py beside {', '.join(GPUS)}")
    measured = {
        "memory_bytes": machine["memory_bytes"],
        "peak_flops_per_s": {tier: GPUS[name].peak_flops_per_s[tier] for tier in tiers},
        "weights_load_bytes_per_s": machine["host_to_device_bytes_per_s"],
    }
    return GPUS[name].model_copy(update=measured)


def _provenance(measurements: Sequence[Measurements]) -> Provenance:
    machine = measurements[0].machine
    replays = median(p.replays for m in measurements for p in m.points)
    return Provenance(
        source=f"whole iterations timed on one {machine['gpu']} with random weights: medians of CUDA graph replays",
        measured_by="python -m tools.profiler; fitted by llmserve profile fit",
        date=max(str(m.machine["date"]) for m in measurements),
        licence="Apache-2.0",
        software=dict(machine["software"]),
        notes=(
            f"{sum(len(m.points) for m in measurements)} iterations, {replays:.0f} replays each in the median.",
            "Sampling (softmax and an exponential race in 32 bits) is included; CPU time of an engine is not.",
            "KV transfer rate: NVLink, one direction at 80 %. Price: mid-range on-demand list price of 2026.",
        ),
    )


def _curve(x: tuple[int, ...], ms: Floats) -> TimeCurve:
    return TimeCurve(x=x, ms=tuple(round(float(v), 5) for v in ms))


def _us(ms: float) -> float:
    return round(ms * 1e3, 4)
