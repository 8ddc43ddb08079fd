"""Dollars of agents that played the same episodes: means with intervals, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
BOOTSTRAP_SEED = 7
TAILS = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over episodes, and where it lies in 95 of 100 resamples of them."""

    mean: float
    ci95: tuple[float, float]


def _resampled(values: Sequence[float]) -> np.ndarray:
    """Means of resampled episodes; equal numbers of episodes give equal resamples, so differences are paired."""
    found = np.asarray(values, np.float64)
    picked = np.random.default_rng(BOOTSTRAP_SEED).integers(0, len(found), (RESAMPLES, len(found)))
    return np.asarray(found[picked].mean(axis=1))


def _interval(means: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(means, TAILS)
    return float(low), float(high)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and bootstrap interval over episodes."""
    if not values:
        raise ValueError("there is nothing to summarise: give at least one episode")
    return Estimate(float(np.mean(values)), _interval(_resampled(values)))


def gain_over(values: Sequence[float], others: Sequence[float]) -> Estimate:
    """By how much `values` exceed `others` on the same episodes, as a share of the mean of `others`."""
    if len(values) != len(others):
        raise ValueError(f"paired values must be equally many; got {len(values)} and {len(others)}")
    means, rest = _resampled(values), _resampled(others)
    gains = (means - rest) / np.abs(rest)
    mean = (float(np.mean(values)) - float(np.mean(others))) / abs(float(np.mean(others)))
    return Estimate(mean, _interval(gains))
