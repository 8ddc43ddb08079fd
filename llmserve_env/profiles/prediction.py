"""Predict the time of one iteration from a profile: the cost model of docs/engine.md in plain Python."""

from __future__ import annotations

from collections.abc import Sequence

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH, GpuCosts
from llmserve_env.engine.tiers import TIER_NAMES, TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.conversion import curve_ps
from llmserve_env.profiles.schema import Profile
from llmserve_env.units import PS_PER_MS

Groups = Sequence[tuple[int, int]]


def predict(profile: Profile, tier: str, decode: Groups = (), prefill: Groups = (), depth: int = 0) -> float:
    """Milliseconds of one iteration.

    Args:
        profile: what `load_profile` returns.
        tier: the name of one of the profile's tiers, such as "FP16".
        decode: groups (sequences, context): the number of decoding sequences, and the context tokens of each
            after the iteration.
        prefill: chunks (tokens, past): the number of prompt tokens, and of tokens computed before them.
        depth: draft tokens verified per decoding sequence.
    """
    return predict_ps(profile.costs(), tier, decode, prefill, depth) / PS_PER_MS


def predict_ps(costs: GpuCosts, tier: str, decode: Groups = (), prefill: Groups = (), depth: int = 0) -> int:
    """`predict` on converted costs, in integer picoseconds, exactly as the engine computes it."""
    time = predict_target_ps(costs, tier, decode, prefill, depth)
    decoding = sum(n for n, _ in decode)
    context = sum(n * c for n, c in decode)
    prefill_tokens = sum(n for n, _ in prefill)
    draft = costs.draft
    if draft is None:
        return time
    if depth > 0 and decoding > 0:
        time += depth * (draft.overhead_ps + curve_ps(draft.gemm, decoding) + draft.per_context_token_ps * context)
    if depth > 0 and prefill_tokens > 0:
        time += curve_ps(draft.gemm, prefill_tokens)
    return time


def predict_target_ps(costs: GpuCosts, tier: str, decode: Groups, prefill: Groups, depth: int) -> int:
    """The target model's share of an iteration: everything except the draft model."""
    _check(costs, tier, decode, prefill, depth)
    t = costs.tiers[TIER_NUMBERS[tier]]
    decoding = sum(n for n, _ in decode)
    context = sum(n * c for n, c in decode)
    decode_tokens = decoding * (1 + depth)
    prefill_tokens = sum(n for n, _ in prefill)
    pairs = sum(n * past + n * (n + 1) // 2 for n, past in prefill)
    time = t.overhead_ps + t.per_sequence_ps * (decoding + len(prefill))
    time += t.per_decode_token_ps * decode_tokens + t.per_prefill_token_ps * prefill_tokens
    time += curve_ps(t.gemm, decode_tokens + prefill_tokens)
    return time + curve_ps(t.decode_attention[depth], context) + curve_ps(t.prefill_attention, pairs)


def _check(costs: GpuCosts, tier: str, decode: Groups, prefill: Groups, depth: int) -> None:
    if TIER_NUMBERS.get(tier) not in costs.tiers:
        known = ", ".join(TIER_NAMES[number] for number in costs.tiers)
        raise ProfileError(f"tier {tier!r} is not in this profile; choose one of {known}")
    if depth > 0 and costs.draft is None:
        raise ProfileError(f"speculation depth {depth} needs a draft model, which this profile lacks; give depth 0")
    if not 0 <= depth <= MAX_SPECULATION_DEPTH:
        raise ProfileError(f"speculation depth {depth} is outside 0..{MAX_SPECULATION_DEPTH}")
    for sequences, context in decode:
        if sequences < 1 or context < 1:
            raise ProfileError(f"a decode group is [sequences >= 1, context >= 1]; got [{sequences}, {context}]")
    for chunk, past in prefill:
        if chunk < 1 or past < 0:
            raise ProfileError(f"a prefill chunk is [tokens >= 1, past >= 0]; got [{chunk}, {past}]")
    if not decode and not prefill:
        raise ProfileError("an empty iteration has no time: give at least one decode group or prefill chunk")
