"""The timed iterations: a grid and random ones for the fit, and other random ones that are held out."""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_CONTEXT_TOKENS = 524_288
"""Largest total context of a decode batch: 64 GiB of Llama-3-8B KV cache."""


@dataclass(frozen=True)
class Point:
    """One iteration: equal decoding sequences with `query_tokens` each, and prompt chunks (tokens, past)."""

    sequences: int = 0
    context: int = 0
    query_tokens: int = 1
    prefill: tuple[tuple[int, int], ...] = ()
    held_out: bool = False

    @property
    def tokens(self) -> int:
        return self.sequences * self.query_tokens + sum(n for n, _ in self.prefill)


SEQUENCES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512)
CONTEXTS = (128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
TILE_STEPS = (16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512)
"""Matrix kernels work in tiles of tokens, so one more token can cost a whole tile; both sides are timed."""
CHUNKS = (
    *(64, 96, 128, 192, 256, 257, 320, 384, 385, 448, 512, 513, 576, 640, 641, 704, 768, 769, 832, 896, 897, 960),
    *(n + d for n in range(1024, 2049, 128) for d in (0, 1)),
    *(n + d for n in (2304, 2560, 2816, 3072, 3584, 4096) for d in (0, 1)),
    *(5120, 6144, 8192),
)


def training_points(dense: bool) -> list[Point]:
    """The grid. The sparse one leaves out most contexts: attention does not depend on the quantization tier."""
    contexts = CONTEXTS if dense else (128, 1024, 4096, 16384)
    points = [
        Point(n, c) for c in contexts for n in SEQUENCES if n * c <= MAX_CONTEXT_TOKENS and (n <= 256 or c <= 1024)
    ]
    points += [Point(n + 1, 128) for n in TILE_STEPS if n < 512]
    queries = (2, 3, 5, 9)
    verified = (1, 4, 16, 32, 64, 128, 192) if dense else (1, 16, 64, 128)
    verified_contexts = (256, 1024, 4096) if dense else (1024,)
    points += [
        Point(n, c, q)
        for q in queries
        for n in verified
        for c in verified_contexts
        if n * q <= 1024 and n * c <= MAX_CONTEXT_TOKENS
    ]
    points += [Point(prefill=((n, 0),)) for n in CHUNKS]
    pasts = (512, 2048, 6144, 14336, 30720) if dense else (2048, 14336)
    points += [Point(prefill=((n, past),)) for past in pasts for n in (32, 128, 256, 512, 1024, 2048, 4096)]
    points += [Point(prefill=((n, 0),) * k) for k, n in ((4, 128), (8, 128), (4, 512), (2, 1024), (8, 512), (16, 64))]
    mixed_contexts = (512, 2048) if dense else (1024,)
    points += [
        Point(n, c, prefill=((chunk, past),))
        for c in mixed_contexts
        for n, chunk, past in (
            (8, 504, 0), (16, 128, 0), (32, 256, 0), (32, 480, 2048), (64, 448, 0), (64, 960, 0), (128, 384, 0),
            (128, 512, 2048), (128, 896, 0), (128, 1920, 0), (200, 312, 0), (256, 256, 0), (256, 768, 4096),
            (256, 1792, 0),
        )
    ]  # fmt: skip
    return points


def random_points(count: int, seed: int, held_out: bool) -> list[Point]:
    """Random iterations as in a serving engine: decode, verification, prefill and mixtures.

    Chunks start at multiples of 16 tokens, the usual KV block.
    """
    draw = random.Random(seed)
    points: list[Point] = []
    while len(points) < count:
        kind = draw.choices(("decode", "verify", "prefill", "mixed"), (4, 2, 2, 3))[0]
        sequences = round(2 ** draw.uniform(0, 8.6)) if kind != "prefill" else 0
        context = round(2 ** draw.uniform(7, 13.5)) if sequences else 0
        query = draw.choice((2, 3, 5, 9)) if kind == "verify" else 1
        chunk, past = round(2 ** draw.uniform(5, 12)), draw.choice((0, 0, 16 * round(2 ** draw.uniform(4, 10))))
        prefill = ((chunk, past),) if kind in ("prefill", "mixed") else ()
        point = Point(sequences, context, query, prefill, held_out)
        if sequences * context <= MAX_CONTEXT_TOKENS // 2 and sequences * query <= 1024:
            points.append(point)
    return points


def draft_points() -> list[Point]:
    """The draft model proposes one token per sequence, or reads a prompt."""
    decode = [
        Point(n, c)
        for c in (128, 1024, 4096)
        for n in (1, 4, 16, 32, 64, 96, 128, 192, 256, 384, 512)
        if n * c <= 262_144
    ]
    return decode + [Point(prefill=((n, 0),)) for n in (128, 512, 1024, 2048, 4096, 8192)]


EXPECTED_POINTS = (
    [Point(n, 1024) for n in (1, 32, 128, 256, 512)]
    + [Point(64, 8192)]
    + [Point(prefill=((n, 0),)) for n in (512, 1024, 2048, 4096, 8192)]
    + [Point(prefill=((2048, 6144),)), Point(128, 1024, prefill=((512, 0),))]
)
"""A short list of iterations that shows whether a card behaves as expected."""
