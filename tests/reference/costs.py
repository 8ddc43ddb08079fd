"""The cost model, evaluated literally."""

from __future__ import annotations

from llmserve_env.engine.costs import Curve, GpuCosts, HostTime

from .request import DECODE, Work

PS_PER_S = 10**12


def curve_ps(curve: Curve, x: int) -> int:
    """Piecewise linear with integer slopes; 0 at 0."""
    if x == 0:
        return 0
    knot = 0
    for i in range(len(curve.x)):
        if curve.x[i] <= x:
            knot = i
    # Beyond the last knot the last segment's slope goes on.
    segment = min(knot, len(curve.x) - 2)
    slope = (curve.ps[segment + 1] - curve.ps[segment]) // (curve.x[segment + 1] - curve.x[segment])
    return curve.ps[knot] + slope * (x - curve.x[knot])


def iteration_ps(costs: GpuCosts, tier: int, depth: int, works: list[Work]) -> int:
    """Duration of one iteration."""
    tier_costs = costs.tiers[tier]
    decodes = [work for work in works if work.kind == DECODE]
    prefills = [work for work in works if work.kind != DECODE]
    decode_tokens = sum(work.n_tokens for work in decodes)
    prefill_tokens = sum(work.n_tokens for work in prefills)
    context_tokens = sum(work.computed_before + work.n_tokens for work in decodes)
    prefill_work = sum(w.n_tokens * w.computed_before + w.n_tokens * (w.n_tokens + 1) // 2 for w in prefills)

    time_ps = tier_costs.overhead_ps + tier_costs.per_sequence_ps * len(works)
    time_ps += tier_costs.per_decode_token_ps * decode_tokens + tier_costs.per_prefill_token_ps * prefill_tokens
    time_ps += curve_ps(tier_costs.gemm, decode_tokens + prefill_tokens)
    time_ps += curve_ps(tier_costs.decode_attention[depth], context_tokens)
    time_ps += curve_ps(tier_costs.prefill_attention, prefill_work)
    draft = costs.draft
    if draft is not None and depth > 0 and decodes:
        one_pass_ps = draft.overhead_ps + curve_ps(draft.gemm, len(decodes))
        time_ps += depth * (one_pass_ps + draft.per_context_token_ps * context_tokens)
    if draft is not None and depth > 0 and prefill_tokens > 0:
        time_ps += curve_ps(draft.gemm, prefill_tokens)
    return time_ps


def host_ps(time: HostTime, num_sequences: int) -> int:
    """Host time for a batch."""
    return time.base_ps + time.per_sequence_ps * num_sequences


def seconds_of_bytes_ps(num_bytes: int, bytes_per_s: int) -> int:
    """Time to move bytes over a link, rounded up to a picosecond."""
    return -(-num_bytes * PS_PER_S // bytes_per_s)
