"""Fit a host to recorded iterations of an engine with asynchronous scheduling.

It is enough to know when iterations were scheduled and what was in them. While iteration k-1 runs on the GPU, the host
schedules and launches k; then it waits for k-1 and takes its output in. So the time between two schedulings is

    gap[k] = max(launch[k], end[k-1] - scheduled[k]) + output[k-1]

where `end` follows from the GPU times as docs/engine.md (Two clocks) says. Squares of the gaps' errors are minimised,
because latencies are sums of gaps: the mean counts, with the interruptions that a host has now and then. No part may be
negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls

from llmserve_env.arrays import Array
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.host import BatchTime

MIN_ITERATIONS = 30
STALL_MS = 50.0
"""Larger errors count linearly: a stall of the machine says nothing about its host."""
PASSES = 4
"""The end of an iteration depends on the one before it, but hardly on the fourth before it."""
DIGITS = 4

START = (2.5, 0.01, 12.0, 0.02, 26.0, 0.03, 0.5, 0.1, 0.005, 1.0)
"""Where the search begins: base and per sequence of the three launch modes, per admission, sampling, attention."""
NUM_LAUNCH = 7
STEP = 1e-3
"""Relative step of the numerical derivatives; the maximum of two clocks has kinks, which smaller steps would follow."""


@dataclass(frozen=True, slots=True)
class IterationLog:
    """Iterations of one run in the order of their scheduling, one entry each."""

    scheduled_ms: Array
    """When scheduling began."""
    sequences: Array
    admissions: Array
    tokens: Array
    prefill_tokens: Array
    graph_max_tokens: int
    after_idle: Array
    """Nothing was executing when the iteration was scheduled; the gap before it is waiting for requests."""
    gpu_ms: Array
    """GPU time by the profile, without decode attention."""
    decode_attention_ms: Array
    output_ms: Array | None = None
    """Time to take the output in, where it was recorded; otherwise it counts as part of the launch."""

    def modes(self) -> dict[str, Array]:
        """Which iterations were launched how."""
        is_small, is_decode = self.tokens <= self.graph_max_tokens, self.prefill_tokens == 0
        return {"full graph": is_small & is_decode, "piecewise graph": is_small & ~is_decode, "no graph": ~is_small}


@dataclass(frozen=True, slots=True)
class FittedHost:
    """What iterations tell about a host; the front end has to be measured at the client."""

    full_graph: BatchTime
    piecewise_graph: BatchTime
    no_graph: BatchTime
    per_admission_ms: float
    output: BatchTime
    sampling: BatchTime
    decode_attention: float


class _Gaps:
    """The gaps of one run, recorded and as a host would make them."""

    def __init__(self, log: IterationLog, output: BatchTime) -> None:
        self.log = log
        self.at = log.scheduled_ms
        ones, sequences = np.ones(len(self.at)), log.sequences
        self.launch = np.column_stack(
            [mode * part for mode in log.modes().values() for part in (ones, sequences)] + [log.admissions]
        )
        self.graph_launch = np.column_stack([ones, sequences])
        taken_in = output.base_ms + output.per_sequence_ms * sequences
        self.output_before = np.concatenate([[0.0], taken_in[:-1]])
        self.following = np.concatenate([self.at[1:], self.at[-1:]])
        # Gaps that end in waiting for requests, and the first after that, are not the host's.
        self.counts = ~log.after_idle & ~np.concatenate([log.after_idle[1:], [True]])
        self.counts[0] = False

    def expected(self, parameters: Array) -> Array:
        """Gaps with this host, given the recorded times of the schedulings before."""
        launch = self.launch @ parameters[:NUM_LAUNCH]
        graph = self.graph_launch @ parameters[:2] + parameters[NUM_LAUNCH - 1] * self.log.admissions
        base, per_sequence, attention = parameters[NUM_LAUNCH:]
        gpu = self.log.gpu_ms + attention * self.log.decode_attention_ms + base + per_sequence * self.log.sequences
        launched, first_kernel = self.at + launch, self.at + np.minimum(launch, graph)
        # An output is taken in before the next scheduling, which tells when the iteration ended at the latest.
        latest = self.following - self.output_before
        before, ended = latest, latest
        for _ in range(PASSES):
            end = np.maximum(np.maximum(first_kernel, ended) + gpu, launched)
            before = np.concatenate([[-np.inf], end[:-1]])
            before[self.log.after_idle] = -np.inf
            # Where the host waited for the GPU, the next scheduling tells exactly.
            ended = np.where(before > launched, latest, np.minimum(before, latest))
        gaps: Array = np.maximum(launch, before - self.at) + self.output_before
        return gaps

    def errors(self, parameters: Array) -> Array:
        """Recorded gaps less the expected ones."""
        errors: Array = (self.following - self.at - self.expected(parameters))[self.counts]
        return errors


def fit_host(logs: Sequence[IterationLog]) -> FittedHost:
    """The host that explains these runs; each launch mode needs a few iterations."""
    for name in logs[0].modes():
        count = sum(int(log.modes()[name].sum()) for log in logs)
        if count < MIN_ITERATIONS:
            raise ProfileError(
                f"{count} iterations of mode {name!r} are too few to fit a host; record at least "
                f"{MIN_ITERATIONS}, with prefills below and above the largest captured graph"
            )
    output = _fit_output(logs)
    gaps = [_Gaps(log, output) for log in logs]

    def errors(parameters: Array) -> Array:
        return np.concatenate([run.errors(parameters) for run in gaps])

    scale = np.maximum(START, 0.01)
    found = least_squares(
        errors, START, bounds=(0.0, np.inf), loss="huber", f_scale=STALL_MS, x_scale=scale, diff_step=STEP
    ).x
    full, piecewise, none, sampling = (_batch_time(found[i : i + 2]) for i in (0, 2, 4, NUM_LAUNCH))
    per_admission_ms, attention = (round(float(found[i]), DIGITS) for i in (NUM_LAUNCH - 1, -1))
    return FittedHost(full, piecewise, none, per_admission_ms, output, sampling, attention)


def _fit_output(logs: Sequence[IterationLog]) -> BatchTime:
    """Time to take outputs in; none where no run recorded it."""
    recorded = [(log.sequences, log.output_ms) for log in logs if log.output_ms is not None]
    if len(recorded) < len(logs):
        return BatchTime(base_ms=0.0)
    sequences, values = (np.concatenate(columns) for columns in zip(*recorded, strict=True))
    known = np.isfinite(values)
    matrix = np.column_stack([np.ones(known.sum()), sequences[known]])
    return _batch_time(nnls(matrix, values[known])[0])


def _batch_time(coefficients: Array) -> BatchTime:
    base, per_sequence = (round(float(value), DIGITS) for value in coefficients)
    return BatchTime(base_ms=base, per_sequence_ms=per_sequence)
