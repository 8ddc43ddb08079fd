"""Means over seeds with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
NUM_RESAMPLES = 10_000
BOOTSTRAP_SEED = 7


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean, interquartile mean, and the bootstrap interval of the mean."""

    mean: float
    iqm: float
    ci95: tuple[float, float]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"mean": self.mean, "iqm": self.iqm, "ci95": list(self.ci95)}


def summarise(values: Sequence[float]) -> Summary:
    """Statistics of independent values; the same values give the same interval every time."""
    if not values:
        raise ValueError("there is nothing to summarise: give at least one value")
    x = np.asarray(values, dtype=np.float64)
    mean, iqm = float(x.mean()), float(stats.trim_mean(x, 0.25))
    if len(x) == 1:
        return Summary(mean, iqm, (mean, mean))
    interval = stats.bootstrap(
        (x,),
        np.mean,
        n_resamples=NUM_RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    return Summary(mean, iqm, (float(interval.low), float(interval.high)))


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], confidence: float
) -> tuple[float, float]:
    """Two one-sided bounds of a ratio of sums over independent episodes, each of which holds with this confidence.

    The episodes are the independent draws, not their requests, which share queues. The spread between episodes is that
    of the ratio estimator; where the ratio is a share of events, it is at least that of independent events.
    """
    above, below = np.asarray(numerators, np.float64), np.asarray(denominators, np.float64)
    n, total = len(below), float(below.sum())
    ratio = float(above.sum() / total) if total else float("nan")
    if not np.isfinite(ratio):
        return ratio, ratio
    residuals = above - ratio * below
    spread = float(np.sqrt(n / (n - 1) * np.square(residuals).sum())) / total if n > 1 else float("inf")
    if 0.0 <= ratio <= 1.0 and np.all(above <= below):
        # Without a single miss the chance of one is still about 1 in `total`.
        spread = max(spread, float(np.sqrt(max(ratio * (1.0 - ratio), (1.0 - 1.0 / total) / total) / total)))
    margin = spread * float(stats.t.ppf(confidence, max(n - 1, 1)))
    return ratio - margin, ratio + margin


def gap_closed(score: float, low: float, high: float) -> float | None:
    """How far `score` gets from `low` to `high`, as a fraction; None where there is no gap."""
    return (score - low) / (high - low) if high > low else None
