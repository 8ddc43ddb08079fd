"""Adjust a base profile to a real engine, from a few benchmark results or many recorded iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from llmserve_env.engine.costs import TierCosts
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.architectures import Architecture
from llmserve_env.profiles.checks import least_factors
from llmserve_env.profiles.conversion import curve_ps
from llmserve_env.profiles.engine_results import Observation
from llmserve_env.profiles.fitting import GEMM_KNOTS, FittedTier, Iteration, fit
from llmserve_env.profiles.measured import error_of
from llmserve_env.profiles.schema import DecodeAttention, Model, Profile, Provenance, Tier, TierName, TimeCurve
from llmserve_env.profiles.store import build_profile
from llmserve_env.units import PS_PER_MS

Floats = NDArray[np.float64]
TERMS = ("ms per iteration +", "ms per sequence +", "products x", "decode attention x", "prefill attention x")
PRIOR_WEIGHT, USUAL_ERROR = 0.2, 0.05
"""A term twice that of the base profile counts like a result that is a fifth off; larger errors count linearly."""
HELD_OUT_EVERY = 5
PROMPT_SIZES = (128, 512, 2048, 8192)
"""Prompts that represent all others if none was recorded."""
MAX_ITERATIONS = 20_000


def calibrate(
    base: Profile, tier: TierName, observations: Sequence[Observation], name: str, date: str
) -> tuple[Profile, Floats]:
    """Scale the base profile's products and attention to the observations, and add what an engine takes beside them.

    Terms that few results leave undetermined stay near the base profile, and nothing gets faster than its card.
    """
    if not observations:
        raise ProfileError("no benchmark results to calibrate on")
    costs = base.costs().tiers[TIER_NUMBERS[tier]]
    rows = np.array([sum(weight * _terms(costs, i) for weight, i in o.parts) for o in observations])
    measured = np.array([o.ms for o in observations])
    found = _adjustment(rows, measured, least_factors(base, tier))
    error = error_of(list(rows @ np.array([1.0, *found])), list(measured))
    tiers: dict[TierName, Tier] = {
        other: _adjusted(t, found, least_factors(base, other)).model_copy(
            update={
                "origin": "measured" if other == tier else "derived",
                "held_out": error if other == tier else None,
            }
        )
        for other, t in base.tiers.items()
    }
    notes = (
        f"Base profile {base.name}; " + ", ".join(f"{p} {f:.3f}" for p, f in zip(TERMS, found, strict=True)) + ".",
        f"{len(observations)} results of tier {tier}; the error is that of the fit. Other tiers get the same factors.",
    )
    return _renamed(base, name, tiers, "vllm bench results", date, notes), found


def _adjustment(rows: Floats, measured: Floats, least: tuple[float, float, float]) -> Floats:
    """Two times to add and three factors, with the least sum of robust relative errors and of distances to the base."""
    usual_ms = float(np.median(measured / np.maximum(rows[:, 1], 1.0)))
    usual = np.array(
        [usual_ms, usual_ms / max(float(np.median(rows[:, 2] / np.maximum(rows[:, 1], 1.0))), 1.0), 1, 1, 1]
    )
    prior = np.array([0.0, 0.0, 1.0, 1.0, 1.0])

    def errors(scaled: Floats) -> Floats:
        found = scaled * usual
        return np.concatenate([rows @ np.array([1.0, *found]) / measured - 1.0, PRIOR_WEIGHT * (scaled - prior)])

    lower = np.array([0.0, 0.0, *least])
    start = np.maximum(prior, lower + 1e-9)
    solution = least_squares(errors, start, bounds=(lower, np.inf), loss="soft_l1", f_scale=USUAL_ERROR)
    return np.asarray(solution.x * usual, dtype=float)


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
    fitted = fit([*training, *_anchors(base, tier, training)], gemm_knots)[tier]
    tiers: dict[TierName, Tier] = {other: _fitted_tier(base, tier, other, fitted) for other in base.tiers}
    if architecture is not None:
        tiers = {n: t.model_copy(update={"weight_bytes": architecture.weight_bytes(n)}) for n, t in tiers.items()}
        base = base.model_copy(update={"model": Model.of(architecture)})
    notes = (f"{len(training)} iterations fitted; GPU, draft model and ratios between tiers of {base.name}.",)
    profile = _renamed(base, name, tiers, "recorded iterations", date, notes)
    costs = profile.costs().tiers[TIER_NUMBERS[tier]]
    error = error_of([_iteration_ms(costs, i) for i in held_out], [i.ms for i in held_out])
    return profile.model_copy(update={"tiers": {**tiers, tier: tiers[tier].model_copy(update={"held_out": error})}})


def _anchors(base: Profile, tier: TierName, recorded: Sequence[Iteration]) -> list[Iteration]:
    """Batches smaller than any that was recorded, and prompts if none were, as the base profile has them.

    They are as much slower or faster than the base profile as the recorded iterations next to them.
    """
    recorded = sorted(recorded, key=lambda i: i.decode_tokens + i.prefill_tokens)
    near = recorded[: max(1, len(recorded) // 10)]
    factor = sum(i.ms for i in near) / sum(predicted_ms(base, tier, near))
    fewest = near[0].decode_tokens + near[0].prefill_tokens
    context = max(1, round(sum(i.context_tokens for i in recorded) / max(sum(i.decoding for i in recorded), 1)))
    sizes = [2**k for k in range(fewest.bit_length()) if 2**k < fewest]
    missing = [Iteration(tier, 1, n, n * context, 0, 0, 0, 0.0) for n in sizes]
    if not any(i.prefill_tokens for i in recorded):
        missing += [Iteration(tier, 1, 0, 0, 1, n, n * (n + 1) // 2, 0.0) for n in PROMPT_SIZES]
    return [replace(i, ms=factor * ms) for i, ms in zip(missing, predicted_ms(base, tier, missing), strict=True)]


def predicted_ms(profile: Profile, tier: TierName, iterations: Sequence[Iteration]) -> list[float]:
    """The profile's predictions for recorded iterations."""
    costs = profile.costs().tiers[TIER_NUMBERS[tier]]
    return [_iteration_ms(costs, iteration) for iteration in iterations]


def _terms(costs: TierCosts, i: Iteration) -> Floats:
    """An iteration as (what stays, iterations, sequences, products, decode attention, prefill attention)."""
    sequences = i.decoding + i.chunks
    fixed = costs.overhead_ps + costs.per_sequence_ps * sequences
    fixed += costs.per_decode_token_ps * i.decode_tokens + costs.per_prefill_token_ps * i.prefill_tokens
    gemm = curve_ps(costs.gemm, i.decode_tokens + i.prefill_tokens)
    decode = curve_ps(costs.decode_attention[i.query_tokens - 1], i.context_tokens)
    prefill = curve_ps(costs.prefill_attention, i.prefill_pairs)
    return np.array([fixed / PS_PER_MS, 1.0, sequences, *(ps / PS_PER_MS for ps in (gemm, decode, prefill))])


def _iteration_ms(costs: TierCosts, iteration: Iteration) -> float:
    return float(_terms(costs, iteration)[[0, 3, 4, 5]].sum())


def _adjusted(tier: Tier, found: Floats, least: tuple[float, float, float]) -> Tier:
    iteration_ms, sequence_ms = (float(ms) for ms in found[:2])
    gemm, decode, prefill = (max(float(f), floor) for f, floor in zip(found[2:], least, strict=True))
    return tier.model_copy(
        update={
            "overhead_us": tier.overhead_us + 1e3 * iteration_ms,
            "per_sequence_us": tier.per_sequence_us + 1e3 * sequence_ms,
            "gemm_tokens": _times(tier.gemm_tokens, gemm),
            "decode_attention": tuple(
                a.model_copy(update={"origin": "derived", "context_tokens": _times(a.context_tokens, decode)})
                for a in tier.decode_attention
            ),
            "prefill_attention_pairs": _times(tier.prefill_attention_pairs, prefill),
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
    provenance = Provenance(source=source, measured_by="llmserve profile fit", date=date, licence="yours", notes=notes)
    parts = {**base.model_dump(), "name": name, "provenance": provenance}
    return build_profile(**{**parts, "tiers": {key: tier.model_dump() for key, tier in tiers.items()}})


def _times(curve: TimeCurve, factor: float) -> TimeCurve:
    return TimeCurve(x=curve.x, ms=tuple(ms * factor for ms in curve.ms))


def _curve(x: tuple[int, ...], ms: Floats) -> TimeCurve:
    return TimeCurve(x=x, ms=tuple(round(float(v), 6) for v in ms))
