"""`predict` against a second implementation of the cost model in docs/engine.md."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.engine.costs import Curve, GpuCosts
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import load_profile, predict
from llmserve_env.profiles.prediction import predict_ps

COSTS = {name: load_profile(name).costs() for name in ("a100-40gb.llama-3-8b", "h200-141gb.llama-3-8b")}
Groups = list[tuple[int, int]]


def value(curve: Curve, x: int) -> int:
    if x == 0:
        return 0
    below = [i for i, knot in enumerate(curve.x) if knot <= x]
    i = below[-1] if below else 0
    segment = min(i, len(curve.x) - 2)
    slope = (curve.ps[segment + 1] - curve.ps[segment]) // (curve.x[segment + 1] - curve.x[segment])
    return curve.ps[i] + slope * (x - curve.x[i])


def formula(costs: GpuCosts, tier: str, decode: Groups, prefill: Groups, depth: int) -> int:
    t, draft = costs.tiers[TIER_NUMBERS[tier]], costs.draft
    decoding = [context for n, context in decode for _ in range(n)]
    sequences = len(decoding) + len(prefill)
    decode_tokens, prefill_tokens = len(decoding) * (1 + depth), sum(n for n, _ in prefill)
    pairs = sum(past + i + 1 for n, past in prefill for i in range(n))
    time = t.overhead_ps + t.per_sequence_ps * sequences
    time += t.per_decode_token_ps * decode_tokens + t.per_prefill_token_ps * prefill_tokens
    time += value(t.gemm, decode_tokens + prefill_tokens)
    time += value(t.decode_attention[depth], sum(decoding)) + value(t.prefill_attention, pairs)
    assert draft is not None
    if depth and decoding:
        per_pass = draft.overhead_ps + value(draft.gemm, len(decoding)) + draft.per_context_token_ps * sum(decoding)
        time += depth * per_pass
    if depth and prefill_tokens:
        time += value(draft.gemm, prefill_tokens)
    return time


@given(
    name=st.sampled_from(sorted(COSTS)),
    tier=st.sampled_from(["FP16", "INT8", "INT4"]),
    decode=st.lists(st.tuples(st.integers(1, 40), st.integers(1, 20_000)), max_size=3),
    prefill=st.lists(st.tuples(st.integers(1, 1_500), st.integers(0, 20_000)), max_size=3),
    depth=st.integers(0, 8),
)
def test_predict_is_the_formula_to_the_picosecond(
    name: str, tier: str, decode: Groups, prefill: Groups, depth: int
) -> None:
    if decode or prefill:
        assert predict_ps(COSTS[name], tier, decode, prefill, depth) == formula(
            COSTS[name], tier, decode, prefill, depth
        )


@given(
    tier=st.sampled_from(["FP16", "INT8", "INT4"]),
    n=st.integers(1, 600),
    context=st.integers(1, 4_000),
    depth=st.integers(0, 8),
)
def test_more_work_never_takes_less_time(tier: str, n: int, context: int, depth: int) -> None:
    costs = COSTS["h200-141gb.llama-3-8b"]
    time = predict_ps(costs, tier, [(n, context)], [], depth)
    assert predict_ps(costs, tier, [(n + 1, context)], [], depth) >= time
    assert predict_ps(costs, tier, [(n, context + 1)], [], depth) >= time
    assert predict_ps(costs, tier, [(n, context)], [(1, 0)], depth) >= time


def test_predict_answers_in_milliseconds() -> None:
    profile = load_profile("h200-141gb.llama-3-8b")
    assert predict(profile, "FP16", decode=[(1, 1024)]) == predict_ps(profile.costs(), "FP16", [(1, 1024)]) / 1e9


def test_every_depth_has_an_attention_curve_between_its_neighbours() -> None:
    curves = COSTS["h200-141gb.llama-3-8b"].tiers[0].decode_attention
    assert len(curves) == 9
    at = [value(curve, 65_536) for curve in curves]
    assert min(at[2], at[4]) <= at[3] <= max(at[2], at[4])
    assert min(at[4], at[8]) <= at[6] <= max(at[4], at[8])


@pytest.mark.parametrize(
    ("tier", "decode", "prefill", "depth", "words"),
    [
        ("FP4", [(1, 1)], [], 0, "tier 'FP4' is not in this profile; choose one of FP16, INT8, INT4"),
        ("FP16", [], [], 0, "an empty iteration has no time"),
        ("FP16", [(0, 5)], [], 0, r"got \[0, 5\]"),
        ("FP16", [(1, 0)], [], 0, r"got \[1, 0\]"),
        ("FP16", [], [(0, 3)], 0, r"got \[0, 3\]"),
        ("FP16", [], [(4, -1)], 0, r"got \[4, -1\]"),
        ("FP16", [(1, 1)], [], 9, r"depth 9 is outside 0\.\.8"),
    ],
)
def test_impossible_iterations_are_refused(tier: str, decode: Groups, prefill: Groups, depth: int, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        predict(load_profile("a100-40gb.llama-3-8b"), tier, decode, prefill, depth)
