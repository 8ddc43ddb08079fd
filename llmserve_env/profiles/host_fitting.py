"""Fit a host to recorded iterations of an engine with asynchronous scheduling.

It is enough to know when iterations were scheduled and what was in them. While iteration k-1 runs on the GPU, the host
schedules and launches k; then it waits for k-1 and takes its output in. So the time between two schedulings is

    gap[k] = max(launch[k], end[k-1] - scheduled[k]) + output[k-1]

where `end` follows from the GPU times as docs/engine.md (Two clocks) says. Gaps tell little about a launch that the GPU
hides: that of a full graph shows only after a prefill, and may take on what the rest of the model lacks. So where
launches were timed one by one, each of them counts as much as a gap. Squares of the errors are minimised, because
latencies are sums of gaps: the mean counts, with the interruptions that a host has now and then. No part is negative.

For given answers to "which clock is later?" a gap is linear in the parts. The search solves this linear problem, asks
again, and ends when nothing improves, so rounding hardly matters: every machine finds the same digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

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
MAX_STEPS = 100
SHORTEST_STEP = 1e-3
"""Share of the way to the solution of the linear problem; if no step of at least this length improves, it is over."""
IMPROVES = 1e-9
"""A smaller relative gain counts as none."""


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
    launch_ms: Array | None = None
    """Time to schedule and launch, where it was recorded; not a number for iterations without."""

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


@dataclass(frozen=True, slots=True)
class _Times:
    """Times of iterations, and how much each of them grows with each part of the host."""

    ms: Array
    slopes: Array

    def __add__(self, other: _Times) -> _Times:
        return _Times(self.ms + other.ms, self.slopes + other.slopes)

    def unless(self, chosen: Array, other: _Times) -> _Times:
        """These times, and where chosen the other ones."""
        return _Times(np.where(chosen, other.ms, self.ms), np.where(chosen[:, None], other.slopes, self.slopes))

    def later(self, other: _Times) -> _Times:
        return self.unless(other.ms > self.ms, other)

    def earlier(self, other: _Times) -> _Times:
        return self.unless(other.ms < self.ms, other)


class _Observed:
    """The observations of one run: gaps, and launches where they were timed; recorded and as a host would make them."""

    def __init__(self, log: IterationLog, output: BatchTime) -> None:
        self.log = log
        self.at = log.scheduled_ms
        ones, sequences, nothing = np.ones(len(self.at)), log.sequences, np.zeros(len(self.at))
        none = [nothing, nothing, nothing]
        modes = [mode * part for mode in log.modes().values() for part in (ones, sequences)]
        self.launch = np.column_stack([*modes, log.admissions, *none])
        self.graph_launch = np.column_stack([ones, sequences, *none, nothing, log.admissions, *none])
        self.gpu = np.column_stack([*none, *none, nothing, ones, sequences, log.decode_attention_ms])
        taken_in = output.base_ms + output.per_sequence_ms * sequences
        self.output_before = np.concatenate([[0.0], taken_in[:-1]])
        self.following = np.concatenate([self.at[1:], self.at[-1:]])
        # Gaps that end in waiting for requests, and the first after that, are not the host's.
        self.counts = ~log.after_idle & ~np.concatenate([log.after_idle[1:], [True]])
        self.counts[0] = False
        self.timed = np.zeros(len(self.at), bool) if log.launch_ms is None else np.isfinite(log.launch_ms)
        self.timed &= ~log.after_idle

    def gaps(self, parameters: Array) -> _Times:
        """Gaps with this host, given the recorded times of the schedulings before."""
        known = np.zeros_like(self.launch)
        launch = _Times(self.launch @ parameters, self.launch)
        graph = _Times(self.graph_launch @ parameters, self.graph_launch)
        gpu = _Times(self.log.gpu_ms + self.gpu @ parameters, self.gpu)
        at = _Times(self.at, known)
        launched, first_kernel = at + launch, at + launch.earlier(graph)
        # An output is taken in before the next scheduling, which tells when the iteration ended at the latest.
        latest = _Times(self.following - self.output_before, known)
        before, ended = latest, latest
        for _ in range(PASSES):
            end = (first_kernel.later(ended) + gpu).later(launched)
            before = _Times(np.roll(end.ms, 1), np.roll(end.slopes, 1, axis=0))
            before.ms[self.log.after_idle] = before.ms[0] = -np.inf
            # Where the host waited for the GPU, the next scheduling tells exactly.
            ended = before.earlier(latest).unless(before.ms > launched.ms, latest)
        return launch.later(_Times(before.ms - self.at, before.slopes)) + _Times(self.output_before, known)

    def errors(self, parameters: Array) -> _Times:
        """Recorded minus expected times; the slopes are those of the expected ones."""
        gaps = self.gaps(parameters)
        of_gaps = (self.following - self.at - gaps.ms)[self.counts]
        if self.log.launch_ms is None:
            return _Times(of_gaps, gaps.slopes[self.counts])
        of_launches = (self.log.launch_ms - self.launch @ parameters)[self.timed]
        slopes = np.concatenate([gaps.slopes[self.counts], self.launch[self.timed]])
        return _Times(np.concatenate([of_gaps, of_launches]), slopes)


def fit_host(logs: Sequence[IterationLog], gpu: tuple[BatchTime, float] | None = None) -> FittedHost:
    """The host that explains these runs; each launch mode needs a few iterations.

    `gpu` is the sampling and the attention of a host on the same GPU. With it only the CPU's parts are fitted: a short
    run cannot tell a slow launch of many sequences from slow attention.
    """
    for name in logs[0].modes():
        count = sum(int(log.modes()[name].sum()) for log in logs)
        if count < MIN_ITERATIONS:
            raise ProfileError(
                f"{count} iterations of mode {name!r} are too few to fit a host; record at least "
                f"{MIN_ITERATIONS}, with prefills below and above the largest captured graph"
            )
    output = _fit_output(logs)
    found = _least_squares([_Observed(log, output) for log in logs], gpu)
    full, piecewise, none, sampling = (_batch_time(found[i : i + 2]) for i in (0, 2, 4, NUM_LAUNCH))
    per_admission_ms, attention = (round(float(found[i]), DIGITS) for i in (NUM_LAUNCH - 1, -1))
    return FittedHost(full, piecewise, none, per_admission_ms, output, sampling, attention)


def _least_squares(runs: Sequence[_Observed], gpu: tuple[BatchTime, float] | None) -> Array:
    """The parts with the smallest squares of all errors; see above for the way to them."""
    parameters = np.array(START)
    fitted = np.ones(len(START), bool)
    if gpu is not None:
        sampling, attention = gpu
        parameters[NUM_LAUNCH:] = sampling.base_ms, sampling.per_sequence_ms, attention
        fitted[NUM_LAUNCH:] = False
    errors, cost = _errors(runs, parameters)
    for _ in range(MAX_STEPS):
        # Errors beyond a stall count linearly: they weigh less, the more they are.
        weights: Array = np.sqrt(STALL_MS / np.maximum(np.abs(errors.ms), STALL_MS))
        slopes = errors.slopes[:, fitted]
        target = weights * (errors.ms + slopes @ parameters[fitted])
        # Triangular, with the same solution.
        triangle: Array = np.linalg.qr(np.column_stack([slopes * weights[:, None], target])).R
        step = np.zeros_like(parameters)
        step[fitted] = nnls(triangle[:, :-1], triangle[:, -1])[0] - parameters[fitted]
        length, reached = 1.0, np.inf
        while length >= SHORTEST_STEP and reached >= cost:
            tried = parameters + length * step
            errors_there, reached = _errors(runs, tried)
            length /= 2.0
        if reached >= cost * (1.0 - IMPROVES):
            break
        parameters, errors, cost = tried, errors_there, reached
    return parameters


def _errors(runs: Sequence[_Observed], parameters: Array) -> tuple[_Times, float]:
    """Errors of all runs, and how much they count together."""
    parts = [run.errors(parameters) for run in runs]
    ms = np.concatenate([one.ms for one in parts])
    size = np.abs(ms)
    counted = np.where(size <= STALL_MS, size**2, STALL_MS * (2.0 * size - STALL_MS))
    return _Times(ms, np.concatenate([one.slopes for one in parts])), float(counted.sum())


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
