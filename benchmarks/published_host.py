"""The host of published servers, from the rows of other groups: what they took beyond the GPU's time.

Launching a prefill is half of what the recorded host takes per layer, which is what a good server needs. The rest is
fitted: time per iteration and per sequence to the time per output token, and a front end to the time to first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.closed_loop import LoopResult
from benchmarks.published_cases import Case
from llmserve_env.arrays import Array
from llmserve_env.engine.costs import HostCosts, HostTime
from llmserve_env.profiles.host import load_host
from llmserve_env.units import ms_to_ps

RECORDED_HOST, RECORDED_LAYERS = "xeon-h200-vllm-0.26", 32
GOOD_SERVER = 0.5
"""Time of a good server relative to the recorded host's."""
QUIET = 16
"""Requests in flight up to which the time to first token shows the front end."""
ROUNDS, MIN_DEVIATION = 50, 0.01
"""Of the fit; smaller relative deviations count alike, so that the weights stay finite."""
CREDIBLE = (0.4, 2.5)
"""Rows further off than this, as ratio of simulated to published, say nothing about a host."""


@dataclass(frozen=True, slots=True)
class PublishedHost:
    """Constants in milliseconds."""

    iteration_ms: float = 0.0
    per_sequence_ms: float = 0.0
    front_end_ms: float = 0.0

    def costs(self, layers: int) -> HostCosts:
        """For a model with so many layers."""
        recorded = load_host(RECORDED_HOST)
        share = GOOD_SERVER * layers / RECORDED_LAYERS
        return HostCosts(
            front_end_ps=ms_to_ps(self.front_end_ms),
            piecewise_graph=HostTime(ms_to_ps(share * recorded.piecewise_graph.base_ms)),
            no_graph=HostTime(ms_to_ps(share * recorded.no_graph.base_ms)),
            sampling=HostTime(ms_to_ps(self.iteration_ms), ms_to_ps(self.per_sequence_ms)),
        )


def fit_published_host(rows: Sequence[tuple[Case, LoopResult]]) -> PublishedHost:
    """The host that brings simulated rows without fitted constants closest to the published ones."""
    low, high = CREDIBLE
    kept = [(case, found) for case, found in rows if low < found.tpot_ms / case.tpot_ms < high]
    if not kept:
        return PublishedHost()
    published = np.array([case.tpot_ms for case, _ in kept])
    missing = published - np.array([found.tpot_ms for _, found in kept])
    columns = [np.ones(len(kept)) / published, np.array([case.load.concurrency for case, _ in kept]) / published]
    iteration_ms, per_sequence_ms = _least_absolute(np.column_stack(columns), missing / published)
    quiet = [(case, found) for case, found in kept if case.load.concurrency <= QUIET]
    front_end_ms = _front_end_ms(quiet)
    return PublishedHost(float(iteration_ms), float(per_sequence_ms), front_end_ms)


def _least_absolute(columns: Array, values: Array) -> Array:
    """Non-negative coefficients with the least sum of absolute deviations, by reweighted least squares."""
    weights = np.ones(len(values))
    found: Array = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        found = nnls(columns * weights[:, None], values * weights)[0]
        weights = 1.0 / np.sqrt(np.maximum(np.abs(values - columns @ found), MIN_DEVIATION))
    return found


def _front_end_ms(rows: Sequence[tuple[Case, LoopResult]]) -> float:
    """The delay with the least median relative error."""
    published = np.array([case.ttft_ms for case, _ in rows])
    simulated = np.array([found.ttft_ms for _, found in rows])
    if len(rows) == 0:
        return 0.0
    delays = np.arange(0.0, 61.0)
    errors = [float(np.median(np.abs((simulated + delay) / published - 1))) for delay in delays]
    return float(delays[int(np.argmin(errors))])
