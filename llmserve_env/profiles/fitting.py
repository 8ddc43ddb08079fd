"""Fit the cost model to timed iterations: one non-negative least-squares fit of relative errors for all tiers.

Attention runs in 16 bits in every tier, so its curves are shared; every other term belongs to one tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmserve_env.errors import ProfileError
from llmserve_env.profiles.curves import CurveTerm, relative_nnls, values_at_knots

Floats = NDArray[np.float64]
GEMM_KNOTS = (
    *(
        1,
        2,
        4,
        8,
        16,
        17,
        24,
        32,
        33,
        48,
        64,
        65,
        80,
        96,
        97,
        112,
        128,
        129,
        160,
        192,
        193,
        224,
        256,
        257,
        288,
        320,
        321,
    ),
    *(384, 385, 448, 449, 512, 513, 576, 640, 641, 704, 768, 769, 832, 896, 897, 960),
    *(n + d for n in range(1024, 2049, 128) for d in (0, 1)),
    *(n + d for n in (2304, 2560, 2816, 3072, 3584, 4096) for d in (0, 1)),
    *(5120, 6144, 8192),
)
"""Token counts; neighbours such as 512 and 513 let the curve step where a matrix kernel starts another tile."""
CONTEXT_KNOTS = (1, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288)
VERIFICATION_KNOTS = (1, 1024, 4096, 16384, 65536, 131072, 262144)
PAIR_KNOTS = (1, 2**11, 2**13, 2**15, 2**17, 2**19, 2**21, 2**22, 2**23, 2**24, 2**25, 2**26, 2**27)
ROBUST_ROUNDS = 4
USUAL_ERROR = 0.02
"""Relative errors beyond this are weighted linearly instead of quadratically."""
LINE_KINDS = ("decode", "prefill")
LINES = ("overhead", "per_sequence", "per_decode_token", "per_prefill_token")


@dataclass(frozen=True)
class Iteration:
    """A timed iteration, reduced to the inputs of the cost model; `ms` excludes the draft model."""

    tier: str
    query_tokens: int
    decoding: int
    context_tokens: int
    chunks: int
    prefill_tokens: int
    prefill_pairs: int
    ms: float

    @property
    def decode_tokens(self) -> int:
        return self.decoding * self.query_tokens


@dataclass(frozen=True)
class FittedTier:
    """Fitted milliseconds: fixed and per-item terms, and curve values at the knots."""

    lines: dict[str, float]
    gemm: tuple[tuple[int, ...], Floats]
    decode_attention: dict[int, tuple[tuple[int, ...], Floats]]
    prefill_attention: tuple[tuple[int, ...], Floats]


@dataclass(frozen=True)
class _Block:
    """Neighbouring columns of the fit that belong to one term."""

    name: tuple[str, ...]
    columns: Floats
    knots: tuple[int, ...] = ()


def fit(iterations: Sequence[Iteration], gemm_knots: tuple[int, ...] = GEMM_KNOTS) -> dict[str, FittedTier]:
    """The tiers with the smallest relative error on the iterations; use fewer knots for noisy clocks."""
    if not iterations:
        raise ProfileError("nothing to fit: the measurements hold no iterations")
    blocks = _blocks(iterations, gemm_knots)
    solution = _robust(np.hstack([b.columns for b in blocks]), np.array([i.ms for i in iterations]))
    parts: dict[tuple[str, ...], Floats] = {}
    at = 0
    for block in blocks:
        width = block.columns.shape[1]
        parts[block.name] = solution[at : at + width]
        at += width
    knots = {b.name: b.knots for b in blocks}
    return {tier: _collect(tier, parts, knots) for tier in sorted({i.tier for i in iterations})}


def fit_products(
    iterations: Sequence[Iteration], gemm_knots: tuple[int, ...] = GEMM_KNOTS
) -> tuple[dict[str, float], tuple[tuple[int, ...], Floats]]:
    """Lines and GEMM curve of one tier, from times without attention; the curve includes what is fixed."""
    decode, prefill = (np.array([getattr(i, f"{kind}_tokens") for i in iterations], float) for kind in LINE_KINDS)
    gemm = _curve_block(("gemm",), gemm_knots, decode + prefill)
    columns = np.hstack([decode[:, None], prefill[:, None], gemm.columns])
    found = _robust(columns, np.array([i.ms for i in iterations]))
    lines = {f"per_{kind}_token": float(found[i]) for i, kind in enumerate(LINE_KINDS)}
    return lines, (gemm.knots, values_at_knots(found[2:]))


def _robust(columns: Floats, target: Floats) -> Floats:
    """Least squares, reweighted so that a few unusually slow iterations do not distort the curves."""
    weights = np.ones(len(target))
    for _ in range(ROBUST_ROUNDS):
        solution = relative_nnls(columns, target, weights)
        error = np.abs(columns @ solution / target - 1.0)
        weights = np.sqrt(1.0 / np.maximum(error / USUAL_ERROR, 1.0))
    return solution


def _blocks(iterations: Sequence[Iteration], gemm_knots: tuple[int, ...]) -> list[_Block]:
    """Columns of the shared attention, then of each tier's linear terms and GEMM curve."""

    def column(values: Sequence[float]) -> Floats:
        return np.array(values, dtype=float)

    blocks = [
        _curve_block(("prefill_attention",), PAIR_KNOTS, column([i.prefill_pairs for i in iterations])),
        _Block(("per_sequence",), column([i.decoding + i.chunks for i in iterations])[:, None]),
    ]
    for q in sorted({i.query_tokens for i in iterations if i.decoding} | {1}):
        context = column([i.context_tokens if i.query_tokens == q else 0 for i in iterations])
        knots = CONTEXT_KNOTS if q == 1 else VERIFICATION_KNOTS
        blocks.append(_curve_block(("decode_attention", str(q)), knots, context))
    for tier in sorted({i.tier for i in iterations}):
        own = column([float(i.tier == tier) for i in iterations])
        blocks.append(_Block((tier, "overhead"), own[:, None]))
        blocks.append(
            _Block((tier, "per_decode_token"), (own * column([i.decode_tokens for i in iterations]))[:, None])
        )
        blocks.append(
            _Block((tier, "per_prefill_token"), (own * column([i.prefill_tokens for i in iterations]))[:, None])
        )
        tokens = own * column([i.decode_tokens + i.prefill_tokens for i in iterations])
        blocks.append(_curve_block((tier, "gemm"), gemm_knots, tokens))
    return blocks


def _curve_block(name: tuple[str, ...], knots: tuple[int, ...], x: Floats) -> _Block:
    """A curve over `x`, with knots within the range of the data."""
    reached = tuple(k for k in knots if k <= max(x.max(), 2))
    used = reached if len(reached) >= 2 else knots[:2]
    return _Block(name, CurveTerm(used).columns(x), used)


def _collect(
    tier: str, parts: dict[tuple[str, ...], Floats], knots: dict[tuple[str, ...], tuple[int, ...]]
) -> FittedTier:
    def curve(*name: str) -> tuple[tuple[int, ...], Floats]:
        return knots[name], values_at_knots(parts[name])

    lines = {line: float(parts[(tier, line)][0]) for line in LINES if (tier, line) in parts}
    lines["per_sequence"] = float(parts[("per_sequence",)][0])
    attention = {int(name[1]): curve(*name) for name in knots if name[0] == "decode_attention"}
    return FittedTier(lines, curve(tier, "gemm"), attention, curve("prefill_attention"))
