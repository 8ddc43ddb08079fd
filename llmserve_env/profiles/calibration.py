"""Adjust a base profile to a real engine, from a few benchmark results or many recorded iterations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from llmserve_env.engine.costs import TierCosts
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.architectures import Architecture
from llmserve_env.profiles.composition import model_facts
from llmserve_env.profiles.conversion import curve_ps
from llmserve_env.profiles.engine_results import Observation
from llmserve_env.profiles.fitting import GEMM_KNOTS, FittedTier, Iteration, fit
from llmserve_env.profiles.measured import error_of
from llmserve_env.profiles.schema import DecodeAttention, FitError, Profile, Provenance, Tier, TierName, TimeCurve
from llmserve_env.profiles.store import build_profile
from llmserve_env.units import PS_PER_MS

Floats = NDArray[np.float64]
PARTS = ("fixed", "gemm", "decode attention", "prefill attention")
PRIOR_WEIGHT = 0.05
"""How strongly a part that no benchmark covers is kept as in the base profile."""
HELD_OUT_EVERY = 5
MAX_ITERATIONS = 20_000


def calibrate(
    base: Profile, tier: TierName, observations: Sequence[Observation], name: str, date: str
) -> tuple[Profile, Floats]:
    """Scale the base profile's fixed time, GEMM and attention to fit the observations; return the factors too."""
    if not observations:
        raise ProfileError("no benchmark results to calibrate on")
    costs = base.costs().tiers[TIER_NUMBERS[tier]]
    rows = np.array([sum(weight * _parts(costs, i) for weight, i in o.parts) for o in observations])
    measured = np.array([o.ms for o in observations])
    matrix = np.vstack([rows / measured[:, None], PRIOR_WEIGHT * np.eye(len(PARTS))])
    factors, _ = nnls(matrix, np.concatenate([np.ones(len(measured)), np.full(len(PARTS), PRIOR_WEIGHT)]))
    error = error_of(list(rows @ factors), list(measured))
    tiers: dict[TierName, Tier] = {
        other: _scaled(t, factors, "measured" if other == tier else "derived", error if other == tier else None)
        for other, t in base.tiers.items()
    }
    notes = (
        f"Base profile {base.name}; factors "
        + ", ".join(f"{p} {f:.3f}" for p, f in zip(PARTS, factors, strict=True))
        + ".",
        f"{len(observations)} results of tier {tier}; the error is that of the fit. Other tiers get the same factors.",
    )
    return _renamed(base, name, tiers, "vllm bench results", date, notes), np.asarray(factors, dtype=float)


def fit_iterations(
    base: Profile,
    tier: TierName,
    iterations: Sequence[Iteration],
    name: str,
    date: str,
    architecture: Architecture | None = None,
    gemm_knots: tuple[int, ...] = GEMM_KNOTS,
) -> Profile:
    """Fit the cost model to recorded iterations, every fifth held out; other tiers keep their ratio to this one.

    Args:
        base: the profile whose GPU, draft model and ratios between tiers are kept.
        tier: the tier the engine ran.
        iterations: what was recorded; beyond MAX_ITERATIONS they are thinned evenly.
        name: name of the new profile.
        date: date of the recording.
        architecture: the model that the engine ran, if it is not the base profile's.
        gemm_knots: token counts between which the GEMM curve is linear.
    """
    used = iterations[:: -(-len(iterations) // MAX_ITERATIONS)] if iterations else []
    training = [i for n, i in enumerate(used) if n % HELD_OUT_EVERY]
    held_out = [i for n, i in enumerate(used) if n % HELD_OUT_EVERY == 0]
    if not training or not held_out:
        raise ProfileError(f"{len(iterations)} recorded iterations are too few to fit: record {HELD_OUT_EVERY} or more")
    fitted = fit(training, gemm_knots)[tier]
    tiers: dict[TierName, Tier] = {other: _fitted_tier(base, tier, other, fitted) for other in base.tiers}
    if architecture is not None:
        tiers = {n: t.model_copy(update={"weight_bytes": architecture.weight_bytes(n)}) for n, t in tiers.items()}
        base = base.model_copy(update={"model": model_facts(architecture)})
    notes = (f"{len(training)} iterations fitted; GPU, draft model and ratios between tiers of {base.name}.",)
    profile = _renamed(base, name, tiers, "recorded iterations", date, notes)
    costs = profile.costs().tiers[TIER_NUMBERS[tier]]
    error = error_of([float(_parts(costs, i).sum()) for i in held_out], [i.ms for i in held_out])
    return profile.model_copy(update={"tiers": {**tiers, tier: tiers[tier].model_copy(update={"held_out": error})}})


def predicted_ms(profile: Profile, tier: TierName, iterations: Sequence[Iteration]) -> list[float]:
    """The profile's predictions for recorded iterations."""
    costs = profile.costs().tiers[TIER_NUMBERS[tier]]
    return [float(_parts(costs, iteration).sum()) for iteration in iterations]


def _parts(costs: TierCosts, i: Iteration) -> Floats:
    """Milliseconds of an iteration by part."""
    fixed = costs.overhead_ps + costs.per_sequence_ps * (i.decoding + i.chunks)
    fixed += costs.per_decode_token_ps * i.decode_tokens + costs.per_prefill_token_ps * i.prefill_tokens
    gemm = curve_ps(costs.gemm, i.decode_tokens + i.prefill_tokens)
    decode = curve_ps(costs.decode_attention[i.query_tokens - 1], i.context_tokens)
    return np.array([fixed, gemm, decode, curve_ps(costs.prefill_attention, i.prefill_pairs)]) / PS_PER_MS


def _scaled(tier: Tier, factors: Floats, origin: str, error: FitError | None) -> Tier:
    fixed, gemm, decode, prefill = (float(f) for f in factors)
    return tier.model_copy(
        update={
            "origin": origin,
            "overhead_us": tier.overhead_us * fixed,
            "per_sequence_us": tier.per_sequence_us * fixed,
            "per_decode_token_us": tier.per_decode_token_us * fixed,
            "per_prefill_token_us": tier.per_prefill_token_us * fixed,
            "gemm_tokens": _times(tier.gemm_tokens, gemm),
            "decode_attention": tuple(
                a.model_copy(update={"origin": "derived", "context_tokens": _times(a.context_tokens, decode)})
                for a in tier.decode_attention
            ),
            "prefill_attention_pairs": _times(tier.prefill_attention_pairs, prefill),
            "held_out": error,
        }
    )


def _fitted_tier(base: Profile, tier: TierName, other: TierName, fitted: FittedTier) -> Tier:
    tokens, gemm_ms = fitted.gemm
    own, its = (base.costs().tiers[TIER_NUMBERS[name]].gemm for name in (tier, other))
    ratio = np.array([curve_ps(its, n) / max(curve_ps(own, n), 1) for n in tokens])
    attention = _curve(*fitted.decode_attention[1])
    return base.tiers[other].model_copy(
        update={
            "origin": "measured" if other == tier else "derived",
            "kernel": "as the engine ran it" if other == tier else f"as in {base.name}, relative to {tier}",
            **{f"{line}_us": ms * 1e3 for line, ms in fitted.lines.items()},
            "gemm_tokens": _curve(tokens, np.maximum.accumulate(gemm_ms * ratio)),
            "decode_attention": (DecodeAttention(query_tokens=1, origin="measured", context_tokens=attention),),
            "prefill_attention_pairs": _curve(*fitted.prefill_attention),
            "held_out": None,
        }
    )


def _renamed(
    base: Profile, name: str, tiers: dict[TierName, Tier], source: str, date: str, notes: tuple[str, ...]
) -> Profile:
    provenance = Provenance(
        source=source, measured_by="llmserve profile import", date=date, licence="yours", notes=notes
    )
    parts = {**base.model_dump(), "name": name, "provenance": provenance}
    return build_profile(**{**parts, "tiers": {key: tier.model_dump() for key, tier in tiers.items()}})


def _times(curve: TimeCurve, factor: float) -> TimeCurve:
    return TimeCurve(x=curve.x, ms=tuple(ms * factor for ms in curve.ms))


def _curve(x: tuple[int, ...], ms: Floats) -> TimeCurve:
    return TimeCurve(x=x, ms=tuple(round(float(v), 6) for v in ms))
