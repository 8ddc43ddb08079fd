"""Fit a host to launches that were timed one by one, as `llmserve calibrate` records them on a live engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from llmserve_env.arrays import Array
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.host import BatchTime
from llmserve_env.profiles.host_fitting import DIGITS, MIN_ITERATIONS, FittedHost

INTERRUPTED = 0.99
"""Longer times than this quantile are cut to it: they mean that another process had the core."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What the host took for one iteration."""

    sequences: int
    admissions: int
    tokens: int
    prefill_tokens: int
    launch_ms: float
    """Time to schedule and launch it, without the device's."""
    output_ms: float
    """Time to process its output."""


def fit_launches(launches: Sequence[Launch], graph_max_tokens: int) -> FittedHost:
    """The host of these launches; a launch mode that hardly occurs gets the times of all launches together."""
    if len(launches) < MIN_ITERATIONS:
        raise ProfileError(f"{len(launches)} timed launches are too few to fit a host; record {MIN_ITERATIONS} or more")
    sequences, admissions, tokens, prefill, launch_ms, output_ms = (
        np.array([getattr(one, name) for one in launches], dtype=float)
        for name in ("sequences", "admissions", "tokens", "prefill_tokens", "launch_ms", "output_ms")
    )
    is_small = tokens <= graph_max_tokens
    modes = [is_small & (prefill == 0), is_small & (prefill > 0), ~is_small]
    ones = np.ones(len(launches))
    found = _fit([mode * part for mode in modes for part in (ones, sequences)] + [admissions], launch_ms)
    usual = _fit([ones, sequences, admissions], launch_ms)
    full, piecewise, none = (
        _batch_time(found[2 * i : 2 * i + 2] if mode.sum() >= MIN_ITERATIONS else usual) for i, mode in enumerate(modes)
    )
    per_admission_ms = round(float(found[-1]), DIGITS)
    output = _batch_time(_fit([ones, sequences], output_ms))
    return FittedHost(full, piecewise, none, per_admission_ms, output, BatchTime(base_ms=0.0), 1.0)


def _fit(columns: Sequence[Array], values: Array) -> Array:
    """Non-negative least squares on the mean, without the interruptions."""
    usual = np.minimum(values, np.quantile(values, INTERRUPTED))
    found: Array = nnls(np.column_stack(columns), usual)[0]
    return found


def _batch_time(coefficients: Array) -> BatchTime:
    base, per_sequence = (round(float(value), DIGITS) for value in coefficients[:2])
    return BatchTime(base_ms=base, per_sequence_ms=per_sequence)
