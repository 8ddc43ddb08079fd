"""How close a fitted generator is to its trace, by sampling it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from llmserve_env.request_table import RequestTable
from llmserve_env.traces.fit_lengths import MIN_EXPLAINED
from llmserve_env.traces.statistics import (
    Traffic,
    clock_step_s,
    dependence,
    dispersion,
    judged_idc,
    percentiles,
    span_s,
    spread_over_clock,
    traffic_of,
    traffic_of_table,
)
from llmserve_env.traces.trace import Trace
from llmserve_env.workloads.sampling import sample
from llmserve_env.workloads.spec import WorkloadSpec

MAX_IDC_ERROR = 0.20
MAX_QUANTILE_ERROR = 0.05
_MAX_SEEDS = 20
_REQUESTS_TO_SAMPLE = 400_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the trace beside the generator's."""

    name: str
    trace: float
    generated: float
    """Median over seeds; over all seeds' requests together where it is a quantile of lengths."""
    low: float
    """Tenth percentile over seeds."""
    high: float
    max_error: float | None = None
    """What the figure is held to, if it is."""

    @property
    def error(self) -> float:
        return abs(self.generated / self.trace - 1.0) if self.trace else abs(self.generated)

    @property
    def is_met(self) -> bool:
        return self.max_error is None or self.error <= self.max_error


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Every compared figure."""

    figures: tuple[Figure, ...]
    num_seeds: int

    @property
    def is_met(self) -> bool:
        """Whether every figure that is held to something meets it."""
        return all(figure.is_met for figure in self.figures)

    def figure(self, name: str) -> Figure:
        """The figure of that name."""
        return next(figure for figure in self.figures if figure.name == name)


def measure_fidelity(trace: Trace, spec: WorkloadSpec, num_seeds: int | None = None) -> Fidelity:
    """Sample the workload over the length of the trace, and compare.

    IDC is held to 20 % in windows that the log's clock resolves, quantiles of lengths to 5 % (or one token).
    """
    if num_seeds is None:
        num_seeds = max(3, min(_MAX_SEEDS, _REQUESTS_TO_SAMPLE // len(trace)))
    horizon_s = max(1, round(span_s(trace)))
    over_trace = WorkloadSpec.model_validate(spec.model_copy(update={"horizon_s": horizon_s}).model_dump(by_alias=True))
    tables = [table for seed in range(num_seeds) if len(table := sample(over_trace, seed))]
    found = [traffic_of_table(table, float(horizon_s)) for table in tables]
    recorded = traffic_of(trace)
    figures = [*_arrival_figures(trace, recorded, found), *_length_figures(trace, tables)]
    return Fidelity(tuple(figures), num_seeds)


def _arrival_figures(trace: Trace, recorded: Traffic, found: list[Traffic]) -> Iterator[Figure]:
    yield _over_seeds("mean rps", recorded.mean_rps, [traffic.mean_rps for traffic in found])
    spread = spread_over_clock(trace.arrival_s)
    for window, idc in judged_idc(trace.arrival_s, recorded.duration_s).items():
        of_seeds = [traffic.dispersion[window] for traffic in found]
        yield _over_seeds(f"IDC {window} s", idc, [d.idc for d in of_seeds], MAX_IDC_ERROR)
        peak_rps = dispersion(spread, window, recorded.duration_s).peak_rps
        yield _over_seeds(f"peak rps {window} s", peak_rps, [d.peak_rps for d in of_seeds])
    if not clock_step_s(trace.arrival_s):
        yield _over_seeds("gap CV", recorded.gap_cv, [traffic.gap_cv for traffic in found])
        empty = [traffic.empty_seconds_fraction for traffic in found]
        yield _over_seeds("empty seconds", recorded.empty_seconds_fraction, empty)


def _length_figures(trace: Trace, tables: list[RequestTable]) -> Iterator[Figure]:
    """Quantiles of lengths; in sessions prompts follow from the turns before, and are compared without a bar."""
    prompt = np.concatenate([table.prompt_tokens for table in tables])
    output = np.concatenate([table.output_tokens for table in tables])
    has_sessions = any(np.any(table.session_id >= 0) for table in tables)
    by_seed = [percentiles(table.prompt_tokens) for table in tables]
    bar = None if has_sessions else MAX_QUANTILE_ERROR
    yield from _quantiles("prompt", percentiles(trace.prompt_tokens), percentiles(prompt), by_seed, bar)
    by_seed = [percentiles(table.output_tokens) for table in tables]
    yield from _quantiles("output", percentiles(trace.output_tokens), percentiles(output), by_seed, bar)
    explained = dependence(trace.prompt_tokens, trace.output_tokens).explained_by_band
    if explained >= MIN_EXPLAINED:
        found = [dependence(table.prompt_tokens, table.output_tokens).explained_by_band for table in tables]
        yield _over_seeds("output explained by prompt", explained, found)


def _quantiles(
    name: str,
    recorded: Mapping[int, float],
    pooled: Mapping[int, float],
    by_seed: list[dict[int, float]],
    max_error: float | None,
) -> Iterator[Figure]:
    for percentile, of_trace in recorded.items():
        low, high = np.percentile([found[percentile] for found in by_seed], (10, 90))
        yield Figure(f"{name} p{percentile}", of_trace, pooled[percentile], float(low), float(high), max_error)


def _over_seeds(name: str, of_trace: float, found: list[float], max_error: float | None = None) -> Figure:
    low, median, high = np.percentile(found, (10, 50, 90)).tolist()
    return Figure(name, of_trace, median, low, high, max_error)
