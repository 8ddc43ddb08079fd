"""Figures of recorded or generated traffic: rate, burstiness, lengths and their dependence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.request_table import RequestTable
from llmserve_env.rng import JITTER_STREAM, stream
from llmserve_env.units import PS_PER_S
from llmserve_env.workloads.traces.trace import Trace

WINDOWS_S = (1, 10, 60)
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
NUM_BANDS = 10
MAX_RATE_BINS = 60
MIN_JUDGED_WINDOWS = 10
"""Least number of windows for which the IDC of a trace is compared with a generator."""
_MIN_WINDOWS = 2
_MIN_TIED = 0.3


@dataclass(frozen=True, slots=True)
class Dispersion:
    """Counts in windows of one length, over the whole windows that fit."""

    window_s: int
    idc: float
    """Index of dispersion for counts, variance over mean: 1 is Poisson."""
    cv: float
    peak_rps: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """The figures that a trace and a generator are compared by."""

    num_requests: int
    duration_s: float
    gap_cv: float
    """Coefficient of variation of the gaps between arrivals."""
    dispersion: Mapping[int, Dispersion]
    """Keyed by window length; windows that do not fit twice are left out."""
    empty_seconds_fraction: float
    prompt_tokens: Mapping[int, float]
    """Keyed by percentile."""
    output_tokens: Mapping[int, float]
    mean_prompt_tokens: float
    mean_output_tokens: float

    @property
    def mean_rps(self) -> float:
        return self.num_requests / self.duration_s


@dataclass(frozen=True, slots=True)
class Dependence:
    """How strongly the output length depends on the prompt length."""

    log_correlation: float
    explained_by_band: float
    """Share of the variance of log output that the prompt's decile explains: the gain of a conditional table."""


@dataclass(frozen=True, slots=True)
class TenantStatistics:
    """One tenant of a trace."""

    name: str
    share: float
    mean_rps: float
    gap_cv: float
    median_prompt_tokens: float
    median_output_tokens: float


def traffic_of(trace: Trace) -> Traffic:
    """Figures of a recorded trace."""
    return measure(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, span_s(trace))


def traffic_of_requests(requests: RequestTable, duration_s: float) -> Traffic:
    """Figures of generated or replayed requests over an episode of this length."""
    return measure(requests.arrival_at_ps / PS_PER_S, requests.prompt_tokens, requests.output_tokens, duration_s)


def span_s(trace: Trace) -> float:
    """Duration of a trace; at least one second."""
    return trace.duration_s or 1.0


def measure(arrival_s: Array, prompt_tokens: Array, output_tokens: Array, duration_s: float) -> Traffic:
    """Figures of at least one request, in order of arrival."""
    windows = [window for window in WINDOWS_S if duration_s >= _MIN_WINDOWS * window]
    counts = window_counts(arrival_s, 1.0, duration_s)
    return Traffic(
        num_requests=len(arrival_s),
        duration_s=duration_s,
        gap_cv=_cv(np.diff(arrival_s)),
        dispersion={window: dispersion(arrival_s, window, duration_s) for window in windows},
        empty_seconds_fraction=float(np.mean(counts == 0)) if len(counts) else 0.0,
        prompt_tokens=percentiles(prompt_tokens),
        output_tokens=percentiles(output_tokens),
        mean_prompt_tokens=float(prompt_tokens.mean()),
        mean_output_tokens=float(output_tokens.mean()),
    )


def window_counts(arrival_s: Array, window_s: float, duration_s: float) -> Array:
    """Arrivals in each whole window from the start."""
    num_windows = int(duration_s / window_s)
    inside = arrival_s[: np.searchsorted(arrival_s, num_windows * window_s)]
    # Division may round an arrival just before the end up into the next window.
    index = np.minimum((inside / window_s).astype(np.int64), num_windows - 1)
    return np.bincount(index, minlength=num_windows)


def dispersion(arrival_s: Array, window_s: int, duration_s: float) -> Dispersion:
    """Dispersion of the counts in windows of one length."""
    counts = window_counts(arrival_s, window_s, duration_s)
    mean = counts.mean()
    idc = float(counts.var() / mean) if mean else 0.0
    return Dispersion(window_s, idc, _cv(counts), float(counts.max() / window_s))


def percentiles(values: Array) -> dict[int, float]:
    """Values at `PERCENTILES`."""
    return dict(zip(PERCENTILES, np.percentile(values, PERCENTILES).tolist(), strict=True))


def _cv(values: Array) -> float:
    mean = values.mean() if len(values) else 0.0
    return float(values.std() / mean) if mean else 0.0


def clock_step_s(arrival_s: Array) -> float:
    """Step of a coarse clock that gives many requests the same time; 0 for a fine clock.

    Burstiness in shorter windows is then a property of the clock, not of the traffic.
    """
    gaps = np.diff(arrival_s)
    if len(gaps) == 0 or np.mean(gaps == 0) < _MIN_TIED or not np.any(gaps):
        return 0.0
    return float(np.median(gaps[gaps > 0]))


def spread_over_clock(arrival_s: Array) -> Array:
    """Arrivals with each tick of a coarse clock spread over its step; unchanged for a fine clock."""
    step_s = clock_step_s(arrival_s)
    if not step_s:
        return arrival_s
    offset_s = step_s * stream(0, JITTER_STREAM).random(len(arrival_s))
    spread: Array = np.minimum(np.sort(arrival_s + offset_s), arrival_s[-1])
    return spread


def judged_idc(arrival_s: Array, duration_s: float) -> dict[int, float]:
    """IDC in the windows that fit often enough and that the clock of the log resolves."""
    clock_s = clock_step_s(arrival_s)
    windows = [w for w in WINDOWS_S if w >= 2 * clock_s and duration_s >= MIN_JUDGED_WINDOWS * w]
    spread = spread_over_clock(arrival_s)
    found = {window: dispersion(spread, window, duration_s).idc for window in windows}
    return {window: idc for window, idc in found.items() if idc > 0.0}


def bands(prompt_tokens: Array, num_bands: int = NUM_BANDS) -> Array:
    """Longest prompt of every band except the last: distinct quantiles of the prompts."""
    ends = np.quantile(prompt_tokens, np.arange(1, num_bands) / num_bands, method="inverted_cdf")
    return np.unique(ends[ends < prompt_tokens.max()]).astype(np.int64)


def dependence(prompt_tokens: Array, output_tokens: Array) -> Dependence:
    """Correlation of the logarithms, and the share of variance that prompt deciles explain."""
    if not np.ptp(prompt_tokens) or not np.ptp(output_tokens):
        return Dependence(0.0, 0.0)
    prompt, output = np.log(prompt_tokens), np.log(output_tokens)
    band = np.searchsorted(bands(prompt_tokens), prompt_tokens)
    sizes = np.bincount(band)
    means = np.bincount(band, output) / np.maximum(sizes, 1)
    explained = np.sum(sizes * (means - output.mean()) ** 2) / (len(output) * output.var())
    return Dependence(float(np.corrcoef(prompt, output)[0, 1]), float(explained))


def tenants(trace: Trace, limit: int) -> list[TenantStatistics]:
    """The busiest tenants."""
    found = []
    for tenant, name in enumerate(trace.tenant_names[:limit]):
        rows = np.flatnonzero(trace.tenant == tenant)
        found.append(
            TenantStatistics(
                name,
                len(rows) / len(trace),
                len(rows) / span_s(trace),
                _cv(np.diff(trace.arrival_s[rows])),
                float(np.median(trace.prompt_tokens[rows])),
                float(np.median(trace.output_tokens[rows])),
            )
        )
    return found


def rate_over_time(trace: Trace, max_bins: int = MAX_RATE_BINS) -> tuple[float, Array]:
    """A round bin width in seconds and the rate in each bin, the last one possibly shorter."""
    duration_s = span_s(trace)
    widths = [step * 10**power for power in range(8) for step in (1, 2, 5)]
    width_s = next((width for width in widths if duration_s / width <= max_bins), widths[-1])
    num_bins = int(np.ceil(duration_s / width_s))
    index = np.minimum((trace.arrival_s / width_s).astype(np.int64), num_bins - 1)
    covered_s = np.minimum(width_s, duration_s - width_s * np.arange(num_bins))
    return float(width_s), np.bincount(index, minlength=num_bins) / covered_s
