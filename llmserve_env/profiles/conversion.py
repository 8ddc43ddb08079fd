"""Convert a profile's milliseconds to the engine's integer picoseconds."""

from __future__ import annotations

from llmserve_env.engine.costs import Curve, DraftCosts, GpuCosts, TierCosts
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.profiles.schema import MAX_QUERY_TOKENS, DecodeAttention, Draft, Profile, Tier, TimeCurve
from llmserve_env.units import PS_PER_MS, PS_PER_US


def gpu_costs(profile: Profile) -> GpuCosts:
    """The costs that the engine reads, from a profile."""
    gpu, model = profile.gpu, profile.model
    return GpuCosts(
        tiers={TIER_NUMBERS[name]: tier_costs(tier) for name, tier in profile.tiers.items()},
        draft=None if profile.draft is None else _draft_costs(profile.draft),
        memory_bytes=gpu.memory_bytes,
        kv_bytes_per_token=model.kv_bytes_per_token,
        activation_bytes_per_token=model.activation_bytes_per_token,
        logits_bytes_per_sequence=model.logits_bytes_per_sequence,
        weights_load_bytes_per_s=gpu.weights_load_bytes_per_s,
        kv_transfer_bytes_per_s=gpu.kv_transfer_bytes_per_s,
        price_usd_per_hour=gpu.price_usd_per_hour * profile.gpus,
    )


def _draft_costs(draft: Draft) -> DraftCosts:
    return DraftCosts(
        overhead_ps=_us(draft.overhead_us),
        gemm=_curve(draft.gemm_tokens),
        per_context_token_ps=_us(draft.per_context_token_us),
        weight_bytes=draft.weight_bytes,
    )


def tier_costs(tier: Tier) -> TierCosts:
    """One tier in picoseconds."""
    return TierCosts(
        overhead_ps=_us(tier.overhead_us),
        per_sequence_ps=_us(tier.per_sequence_us),
        per_decode_token_ps=_us(tier.per_decode_token_us),
        per_prefill_token_ps=_us(tier.per_prefill_token_us),
        gemm=_curve(tier.gemm_tokens),
        decode_attention=tuple(_attention(tier.decode_attention, q) for q in range(1, MAX_QUERY_TOKENS + 1)),
        prefill_attention=_curve(tier.prefill_attention_pairs),
        weight_bytes=tier.weight_bytes,
    )


def _attention(measured: tuple[DecodeAttention, ...], query_tokens: int) -> Curve:
    """The curve at one query count, linear between the two nearest measured counts, and constant beyond the last."""
    below = max((a for a in measured if a.query_tokens <= query_tokens), key=lambda a: a.query_tokens)
    above = min((a for a in measured if a.query_tokens >= query_tokens), key=lambda a: a.query_tokens, default=below)
    if above.query_tokens == below.query_tokens:
        return _curve(below.context_tokens)
    share = (query_tokens - below.query_tokens) / (above.query_tokens - below.query_tokens)
    x = tuple(sorted(set(below.context_tokens.x) | set(above.context_tokens.x)))
    low, high = (_curve(a.context_tokens) for a in (below, above))
    ps = [round((1 - share) * curve_ps(low, n) + share * curve_ps(high, n)) for n in x]
    return Curve(x, _never_falling(ps))


def _never_falling(ps: list[int]) -> tuple[int, ...]:
    """Make knots non-decreasing: slopes are floored, so an interpolated knot can be slightly below the previous one."""
    for i in range(1, len(ps)):
        ps[i] = max(ps[i], ps[i - 1])
    return tuple(ps)


def curve_ps(curve: Curve, x: int) -> int:
    """The curve at `x`, as the engine computes it: integer slopes by floor division, zero at zero."""
    if x == 0:
        return 0
    i = 0
    while i < len(curve.x) - 2 and curve.x[i + 1] <= x:
        i += 1
    slope = (curve.ps[i + 1] - curve.ps[i]) // (curve.x[i + 1] - curve.x[i])
    if x >= curve.x[i + 1]:
        return curve.ps[i + 1] + slope * (x - curve.x[i + 1])
    return curve.ps[i] + slope * (x - curve.x[i])


def _curve(curve: TimeCurve) -> Curve:
    return Curve(curve.x, tuple(round(ms * PS_PER_MS) for ms in curve.ms))


def _us(us: float) -> int:
    return round(us * PS_PER_US)
