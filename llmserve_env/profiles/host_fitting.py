"""Fit a host to recorded iterations of an engine: launch times by mode, and the time to take outputs in.

Times are fitted by least absolute deviations, because a host that is interrupted now and then has a long tail; no part
may be negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from llmserve_env.arrays import Array
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.host import BatchTime

ROUNDS = 12
MIN_DEVIATION_MS = 0.02
"""Smaller deviations count alike, so that the weights stay finite."""
MIN_ITERATIONS = 30
DIGITS = 4


@dataclass(frozen=True, slots=True)
class HostIterations:
    """Iterations of one or more runs, one entry each."""

    sequences: Array
    admissions: Array
    tokens: Array
    prefill_tokens: Array
    graph_max_tokens: Array
    launch_ms: Array
    """From the start of scheduling until the last kernel is launched."""
    output_ms: Array
    """To take the output in."""
    extra_gpu_ms: Array
    """GPU time beyond the profile's; read for decodes alone, whose launch the GPU never waits for."""


@dataclass(frozen=True, slots=True)
class FittedHost:
    """What iterations tell about a host; the front end has to be measured at the client."""

    full_graph: BatchTime
    piecewise_graph: BatchTime
    no_graph: BatchTime
    per_admission_ms: float
    output: BatchTime
    sampling: BatchTime


def least_absolute(columns: Sequence[Array], values: Array) -> Array:
    """Non-negative coefficients with the least sum of absolute deviations, by reweighted least squares."""
    matrix = np.column_stack(columns).astype(float)
    weights = np.ones(len(values))
    found: Array = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        found = nnls(matrix * weights[:, None], values * weights)[0]
        weights = 1.0 / np.sqrt(np.maximum(np.abs(values - matrix @ found), MIN_DEVIATION_MS))
    return found


def fit_host(rows: HostIterations) -> FittedHost:
    """The host that explains these iterations; each launch mode needs a few of them."""
    is_small = rows.tokens <= rows.graph_max_tokens
    is_decode = rows.prefill_tokens == 0
    modes = {"full graph": is_small & is_decode, "piecewise graph": is_small & ~is_decode, "no graph": ~is_small}
    for name, chosen in modes.items():
        if chosen.sum() < MIN_ITERATIONS:
            raise ProfileError(
                f"{chosen.sum()} iterations of mode {name!r} are too few to fit a host; record at least "
                f"{MIN_ITERATIONS}, with prefills below and above the largest captured graph"
            )
    columns = [mode * part for mode in modes.values() for part in (1.0, rows.sequences)]
    launch = least_absolute([*columns, rows.admissions], rows.launch_ms)
    output = least_absolute([np.ones(len(rows.output_ms)), rows.sequences], rows.output_ms)
    decodes = modes["full graph"]
    sampling = least_absolute([np.ones(decodes.sum()), rows.sequences[decodes]], rows.extra_gpu_ms[decodes])
    full, piecewise, none = (_batch_time(launch[i : i + 2]) for i in (0, 2, 4))
    per_admission_ms = round(float(launch[6]), DIGITS)
    return FittedHost(full, piecewise, none, per_admission_ms, _batch_time(output), _batch_time(sampling))


def _batch_time(coefficients: Array) -> BatchTime:
    base, per_sequence = (round(float(value), DIGITS) for value in coefficients)
    return BatchTime(base_ms=base, per_sequence_ms=per_sequence)
