"""Token counts of a trace as quantile tables, outputs given the band of their prompt."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.traces.statistics import NUM_BANDS, bands, dependence

RELATIVE_TOLERANCE = 0.015
"""How far a table may be from the counts it represents."""
_ROUNDING_TOLERANCE = 0.49
"""Less than half a token, so that rounding restores small counts exactly."""
_LEVEL_DIGITS = 7
MIN_EXPLAINED = 0.02
"""Share of the variance of log output that prompt bands must explain to be worth their tables."""
MIN_BAND_ROWS = 50


def token_law(values: Array) -> dict[str, Any]:
    """A distribution of token counts, with the fewest quantiles that are within the tolerance everywhere."""
    levels, counts = _quantile_points(values)
    if counts[0] == counts[-1]:
        return {"kind": "constant", "value": int(counts[0])}
    kept = simplify(levels, counts, np.maximum(_ROUNDING_TOLERANCE, RELATIVE_TOLERANCE * counts))
    return {"kind": "quantiles", **_quantile_fields(levels[kept], counts[kept].tolist())}


def duration_law(values_s: Array) -> dict[str, Any]:
    """A distribution of durations in seconds, by quantiles at round levels."""
    levels = np.array([0.0, 0.01, 0.05, *np.arange(0.1, 0.91, 0.1), 0.95, 0.99, 1.0])
    found = np.round(np.quantile(values_s, levels), 3)
    if found[0] == found[-1]:
        return {"kind": "constant", "value": float(found[0])}
    return {"kind": "quantiles", **_quantile_fields(levels, found.tolist())}


def output_law(prompt_tokens: Array, output_tokens: Array) -> dict[str, Any]:
    """Outputs by prompt band, or one distribution for all if the bands explain too little."""
    num_bands = min(NUM_BANDS, len(prompt_tokens) // MIN_BAND_ROWS)
    if num_bands < 2 or dependence(prompt_tokens, output_tokens).explained_by_band < MIN_EXPLAINED:
        return token_law(output_tokens)
    ends = bands(prompt_tokens, num_bands)
    band_of = np.searchsorted(ends, prompt_tokens)
    laws: list[dict[str, Any]] = [
        {"prompt_up_to": int(end), "tokens": token_law(output_tokens[band_of == band])} for band, end in enumerate(ends)
    ]
    laws.append({"tokens": token_law(output_tokens[band_of == len(ends)])})
    return {"kind": "conditional", "bands": laws}


def _quantile_points(values: Array) -> tuple[Array, Array]:
    """First and last quantile level of every distinct value."""
    distinct, sizes = np.unique(values, return_counts=True)
    after = np.cumsum(sizes)
    first, last = after - sizes + 0.5, after - 0.5
    levels = np.column_stack((first, last)).ravel() / len(values)
    counts = np.repeat(distinct, 2).astype(np.int64)
    levels = np.concatenate(([0.0], levels, [1.0]))
    counts = np.concatenate((counts[:1], counts, counts[-1:]))
    rounded = np.round(levels, _LEVEL_DIGITS)
    kept = np.concatenate((rounded[1:] > rounded[:-1], [True]))
    kept[0] = True
    return rounded[kept], counts[kept]


def simplify(x: Array, y: Array, tolerance: Array) -> Array:
    """Indices of the points that a polyline needs to pass every other point within its tolerance (Douglas–Peucker)."""
    kept = np.zeros(len(x), dtype=bool)
    kept[[0, -1]] = True
    pending = [(0, len(x) - 1)]
    while pending:
        first, last = pending.pop()
        if last - first < 2:
            continue
        inner = slice(first + 1, last)
        line = np.interp(x[inner], x[[first, last]], y[[first, last]])
        excess = np.abs(y[inner] - line) / tolerance[inner]
        worst = int(np.argmax(excess))
        if excess[worst] > 1.0:
            middle = first + 1 + worst
            kept[middle] = True
            pending += [(first, middle), (middle, last)]
    return np.flatnonzero(kept)


def _quantile_fields(levels: Array, values: list[Any]) -> dict[str, Any]:
    return {"levels": levels.tolist(), "values": values}
