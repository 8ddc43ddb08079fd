"""Compare a fitted generator with its trace by sampling it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.workloads.sampling import sample
from llmserve_env.workloads.spec import WorkloadSpec
from llmserve_env.workloads.traces.fit_lengths import MIN_EXPLAINED
from llmserve_env.workloads.traces.statistics import (
    Traffic,
    clock_step_s,
    dependence,
    dispersion,
    judged_idc,
    percentiles,
    span_s,
    spread_over_clock,
    traffic_of,
    traffic_of_requests,
)
from llmserve_env.workloads.traces.trace import Trace

MAX_IDC_ERROR = 0.20
MAX_QUANTILE_ERROR = 0.05
_MAX_SEEDS = 20
_REQUESTS_TO_SAMPLE = 400_000


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic of the trace and the same statistic of the generator."""

    name: str
    trace: float
    generated: float
    """Median over seeds; for quantiles of lengths, the quantile over the requests of all seeds."""
    low: float
    """Tenth percentile over seeds."""
    high: float
    max_error: float | None = None
    """Largest allowed error, if the statistic has a bar."""

    @property
    def error(self) -> float:
        return abs(self.generated / self.trace - 1.0) if self.trace else abs(self.generated)

    @property
    def is_met(self) -> bool:
        return self.max_error is None or self.error <= self.max_error


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Every compared statistic."""

    statistics: tuple[Statistic, ...]
    num_seeds: int

    @property
    def is_met(self) -> bool:
        """Whether every statistic with a bar meets it."""
        return all(statistic.is_met for statistic in self.statistics)

    def statistic(self, name: str) -> Statistic:
        """The statistic of that name."""
        return next(statistic for statistic in self.statistics if statistic.name == name)


def measure_fidelity(trace: Trace, spec: WorkloadSpec, num_seeds: int | None = None) -> Fidelity:
    """Sample the workload over the length of the trace, and compare.

    The bars are 20 % for IDC in windows that the log's clock resolves, and 5 % for quantiles of lengths.
    """
    if num_seeds is None:
        num_seeds = max(3, min(_MAX_SEEDS, _REQUESTS_TO_SAMPLE // len(trace)))
    horizon_s = max(1, round(span_s(trace)))
    over_trace = WorkloadSpec.model_validate(spec.model_copy(update={"horizon_s": horizon_s}).model_dump(by_alias=True))
    samples = [_measured(over_trace, seed) for seed in range(num_seeds)]
    statistics = [*_arrival_statistics(trace, [one.traffic for one in samples]), *_length_statistics(trace, samples)]
    return Fidelity(tuple(statistics), num_seeds)


@dataclass(frozen=True, slots=True)
class _Sample:
    """Figures of one seed's requests."""

    traffic: Traffic
    prompt_tokens: Array
    output_tokens: Array
    has_sessions: bool


def _measured(spec: WorkloadSpec, seed: int) -> _Sample:
    requests = sample(spec, seed)
    if not len(requests):
        raise ConfigError(f"the workload generates no requests in {spec.horizon_s} s with seed {seed}; raise its rates")
    return _Sample(
        traffic_of_requests(requests, float(spec.horizon_s)),
        requests.prompt_tokens.astype(np.int32),
        requests.output_tokens.astype(np.int32),
        bool(np.any(requests.session_id >= 0)),
    )


def _arrival_statistics(trace: Trace, found: list[Traffic]) -> Iterator[Statistic]:
    recorded = traffic_of(trace)
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


def _length_statistics(trace: Trace, samples: list[_Sample]) -> Iterator[Statistic]:
    """Quantiles of lengths; prompts of sessions follow from earlier turns, so they have no bar."""
    bar = None if any(one.has_sessions for one in samples) else MAX_QUANTILE_ERROR
    prompts = [one.prompt_tokens for one in samples]
    outputs = [one.output_tokens for one in samples]
    yield from _quantiles("prompt", trace.prompt_tokens, prompts, bar)
    yield from _quantiles("output", trace.output_tokens, outputs, bar)
    explained = dependence(trace.prompt_tokens, trace.output_tokens).explained_by_band
    if explained >= MIN_EXPLAINED:
        found = [dependence(one.prompt_tokens, one.output_tokens).explained_by_band for one in samples]
        yield _over_seeds("output explained by prompt", explained, found)


def _quantiles(name: str, recorded: Array, drawn: list[Array], max_error: float | None) -> Iterator[Statistic]:
    pooled = percentiles(np.concatenate(drawn))
    by_seed = [percentiles(values) for values in drawn]
    for percentile, of_trace in percentiles(recorded).items():
        low, high = np.percentile([found[percentile] for found in by_seed], (10, 90))
        yield Statistic(f"{name} p{percentile}", of_trace, pooled[percentile], float(low), float(high), max_error)


def _over_seeds(name: str, of_trace: float, found: list[float], max_error: float | None = None) -> Statistic:
    low, median, high = np.percentile(found, (10, 50, 90)).tolist()
    return Statistic(name, of_trace, median, low, high, max_error)
