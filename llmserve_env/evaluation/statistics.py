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


def gap_closed(score: float, low: float, high: float) -> float | None:
    """How far `score` gets from `low` to `high`, as a fraction; None where there is no gap."""
    return (score - low) / (high - low) if high > low else None
