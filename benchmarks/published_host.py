"""The host of published servers, from the rows of other groups: what they took beyond the GPU's time.

Launching a prefill is half of what the recorded host takes for the model, which is what a good server needs. The rest
is fitted: time per iteration and per sequence to the time per output token; and to the time to first token a front end,
which takes longer for a long prompt, whose text it tokenizes, and with many requests in flight, whose answers it
streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from benchmarks.closed_loop import Load, LoopResult
from benchmarks.published_cases import Case
from llmserve_env.arrays import Array
from llmserve_env.engine.costs import HostCosts, HostTime
from llmserve_env.profiles.host import load_host
from llmserve_env.profiles.schema import Model
from llmserve_env.units import ms_to_ps

RECORDED_HOST = "xeon-h200-vllm-0.26"
GOOD_SERVER = 0.5
"""Time of a good server relative to the recorded host's."""
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
    per_prompt_token_ms: float = 0.0
    per_stream_ms: float = 0.0

    def costs(self, model: Model, load: Load) -> HostCosts:
        """Beside a model under this load."""
        front_end_ms = self.front_end_ms + self.per_prompt_token_ms * load.prompt_tokens
        front_end_ms += self.per_stream_ms * load.concurrency
        launching = load_host(RECORDED_HOST).for_model(model)
        return HostCosts(
            front_end_ps=ms_to_ps(front_end_ms),
            piecewise_graph=HostTime(ms_to_ps(GOOD_SERVER * launching.piecewise_graph.base_ms)),
            no_graph=HostTime(ms_to_ps(GOOD_SERVER * launching.no_graph.base_ms)),
            sampling=HostTime(ms_to_ps(self.iteration_ms), ms_to_ps(self.per_sequence_ms)),
        )


def fit_published_host(rows: Sequence[tuple[Case, LoopResult]]) -> PublishedHost:
    """The host that brings simulated rows without fitted constants closest to the published ones."""
    low, high = CREDIBLE
    kept = [(case, found) for case, found in rows if low < found.tpot_ms / case.tpot_ms < high]
    if not kept:
        return PublishedHost()
    one = np.ones(len(kept))
    streams = np.array([case.load.concurrency for case, _ in kept], dtype=float)
    prompts = np.array([case.load.prompt_tokens for case, _ in kept], dtype=float)
    tpot_ms, ttft_ms = (np.array([getattr(case, name) for case, _ in kept]) for name in ("tpot_ms", "ttft_ms"))
    missing_tpot = tpot_ms - np.array([found.tpot_ms for _, found in kept])
    missing_ttft = ttft_ms - np.array([found.ttft_ms for _, found in kept])
    decode = _least_absolute(np.column_stack([one, streams]) / tpot_ms[:, None], missing_tpot / tpot_ms)
    front = _least_absolute(np.column_stack([one, prompts, streams]) / ttft_ms[:, None], missing_ttft / ttft_ms)
    return PublishedHost(*map(float, (*decode, *front)))


def _least_absolute(columns: Array, values: Array) -> Array:
    """Non-negative coefficients with the least sum of absolute deviations, by reweighted least squares."""
    weights = np.ones(len(values))
    found: Array = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        found = nnls(columns * weights[:, None], values * weights)[0]
        weights = 1.0 / np.sqrt(np.maximum(np.abs(values - columns @ found), MIN_DEVIATION))
    return found
