"""Arrivals of a trace as a process: a rate series with a renewal shape, or ON/OFF periods.

Samples of both are compared with the trace by the index of dispersion (IDC) in windows of 1, 10 and 60 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import numpy as np
from scipy.optimize import brentq

from llmserve_env.arrays import Array
from llmserve_env.workloads.arrivals import OnOff, RateSeries
from llmserve_env.workloads.rates import arrival_times_s, rate_curve
from llmserve_env.workloads.streams import ARRIVAL_GAPS, SourceStreams
from llmserve_env.workloads.traces.statistics import dispersion, judged_idc, spread_over_clock

Process = TypeVar("Process", RateSeries, OnOff)
Kind = Literal["auto", "rate_series", "on_off"]
KINDS: tuple[Kind, ...] = ("auto", "rate_series", "on_off")

STEPS_S = (3600, 1800, 600, 300, 120, 60, 30, 20, 10, 5, 2, 1)
MAX_STEPS = 10_000
GOOD_ENOUGH = 0.1
"""Once the error of the IDC is below this, finer rate series are not tried."""
MIN_REQUESTS = 100
"""Fewer arrivals do not reveal burstiness, so they are fitted as Poisson."""
MIN_BURSTY_CV = 2.0
"""Least CV of the gaps for which ON/OFF periods are tried."""
STEP_PENALTY = 0.02
"""Least error that each doubling of a rate series must save; longer series follow the noise of the trace."""
_MAX_CV_FACTOR = 1.5
"""How far the fitted CV may be from that of the recorded gaps, in rate-scaled time."""
_ON_OFF_CVS = (0.2, 10.0)
_CV_HALVINGS = 8
_ARRIVALS_TO_SAMPLE = 300_000
_MAX_SEEDS = 16


@dataclass(frozen=True, slots=True)
class ArrivalFit:
    """A process, how its IDC compares with the trace's, and in which windows."""

    process: RateSeries | OnOff
    median_error: float
    """Worst relative error of the median IDC over seeds."""
    spread_error: float
    """Worst relative error that one seed in ten exceeds on either side."""

    def describe(self) -> str:
        """The process in one line."""
        match self.process:
            case OnOff(on_s=on_s, on_rps=on_rps, off_s=off_s, cv=cv):
                law = f"on_off: {on_rps:.3g} rps for {on_s:.3g} s, nothing for {off_s:.3g} s, gap CV {cv:.3g}"
            case RateSeries(step_s=step_s, rates_rps=rates, cv=cv):
                law = f"rate_series: {len(rates)} steps of {step_s:g} s, gap CV {cv:.3g}"
        return f"{law}; IDC off by {self.median_error:.1%} (median), {self.spread_error:.1%} (9 of 10 seeds)"


def fit_arrivals(arrival_s: Array, duration_s: float, kind: Kind = "auto") -> list[ArrivalFit]:
    """Fits of the wanted kind, closest first; empty if `on_off` cannot be fitted."""
    targets = judged_idc(arrival_s, duration_s)
    arrival_s = spread_over_clock(arrival_s)
    if len(arrival_s) < MIN_REQUESTS or not targets:
        flat = RateSeries(
            kind="rate_series", step_s=duration_s, rates_rps=(_rounded(len(arrival_s) / duration_s),), cyclic=True
        )
        return [] if kind == "on_off" else [ArrivalFit(flat, 0.0, 0.0)]
    fits = []
    if kind != "on_off":
        fits.append(_fit_series(arrival_s, duration_s, targets))
    is_bursty = np.diff(arrival_s).std() > MIN_BURSTY_CV * np.diff(arrival_s).mean()
    if kind == "on_off" or (kind == "auto" and is_bursty):
        fits += _fit_on_off(arrival_s, duration_s, targets)
    return sorted(fits, key=lambda fit: fit.spread_error)


def _fit_series(arrival_s: Array, duration_s: float, targets: Mapping[int, float]) -> ArrivalFit:
    """The series with the best trade-off of error and length, up to the first one that is good enough."""
    fits = []
    for step_s in (duration_s, *(step for step in STEPS_S if 1.0 < duration_s / step <= MAX_STEPS)):
        gap_cv = _rescaled_cv(arrival_s, duration_s, step_s)
        series = partial(_series, arrival_s, duration_s, step_s)
        cvs = (gap_cv / _MAX_CV_FACTOR, gap_cv * _MAX_CV_FACTOR)
        process = _calibrated(series, cvs, duration_s, targets, len(arrival_s))
        fit = _judged(process, duration_s, targets, len(arrival_s))
        fits.append((fit.median_error + STEP_PENALTY * math.log2(len(process.rates_rps)), fit))
        if fit.median_error <= GOOD_ENOUGH:
            break
    return min(fits, key=lambda scored: scored[0])[1]


def _rescaled_cv(arrival_s: Array, duration_s: float, step_s: float) -> float:
    """CV of the gaps in rate-scaled time, in which a process that follows the rate has a constant rate."""
    counts, covered_s = _step_counts(arrival_s, duration_s, step_s)
    edges_s = np.concatenate(([0.0], np.cumsum(covered_s)))
    gaps = np.diff(np.interp(arrival_s, edges_s, np.concatenate(([0.0], np.cumsum(counts)))))
    return float(np.clip(gaps.std() / gaps.mean(), 0.1, 20.0))


def _series(arrival_s: Array, duration_s: float, step_s: float, cv: float) -> RateSeries:
    """Counts per step as rates, without the variance that the renewal process of this `cv` adds again."""
    counts, covered_s = _step_counts(arrival_s, duration_s, step_s)
    rates = _without_noise(counts, cv) / covered_s
    return RateSeries(
        kind="rate_series", step_s=float(step_s), rates_rps=tuple(map(_rounded, rates)), cv=_rounded(cv), cyclic=True
    )


def _step_counts(arrival_s: Array, duration_s: float, step_s: float) -> tuple[Array, Array]:
    """Arrivals in each step and the seconds it covers, fewer in the last one."""
    num_steps = math.ceil(duration_s / step_s)
    index = np.minimum((arrival_s / step_s).astype(np.int64), num_steps - 1)
    counts = np.bincount(index, minlength=num_steps).astype(float)
    covered_s = np.minimum(step_s, duration_s - step_s * np.arange(num_steps))
    # The rate of a short last step would be noise, so its count is spread over the last two steps.
    if num_steps > 1 and covered_s[-1] < step_s:
        counts[-2:] = counts[-2:].sum() * covered_s[-2:] / covered_s[-2:].sum()
    return counts, covered_s


def _without_noise(counts: Array, cv: float) -> Array:
    """Counts moved towards their mean until only the variance of the rate remains; empty steps stay empty."""
    busy = counts > 0
    mean = counts[busy].mean()
    within = np.sum((counts[busy] - mean) ** 2) / len(counts)
    if not within:
        return counts
    surplus = cv**2 * counts.mean()
    return np.where(busy, mean + math.sqrt(max(0.0, 1.0 - surplus / within)) * (counts - mean), 0.0)


def _fit_on_off(arrival_s: Array, duration_s: float, targets: Mapping[int, float]) -> list[ArrivalFit]:
    """Exponential ON and OFF periods with the mean rate and the IDC of the trace in three windows.

    A process that is ON a fraction p of the time, changing at rate r = 1/on_s + 1/off_s, has in windows of w seconds
    IDC(w) = i + a·g(r, w) with g(r, w) = 1/r − (1 − exp(−r·w))/(r²·w) and a = 2·mean_rps·(1 − p)/p,
    where i is due to the gaps within ON periods (Fischer and Meier-Hellstern, Performance Evaluation 18, 1993).
    """
    if len(targets) < 3:
        return []
    short, middle, long = sorted(targets)

    def g(r: float, window_s: float) -> float:
        return 1.0 / r + math.expm1(-r * window_s) / (r * r * window_s)

    def ratio(r: float) -> float:
        return (g(r, long) - g(r, middle)) / (g(r, middle) - g(r, short))

    rise = targets[middle] - targets[short]
    wanted = (targets[long] - targets[middle]) / rise if rise > 0.0 else math.inf
    slowest, fastest = 1.0 / duration_s, 10.0
    if not ratio(fastest) < wanted < ratio(slowest):
        return []
    r = float(brentq(lambda r: ratio(r) - wanted, slowest, fastest))
    a = rise / (g(r, middle) - g(r, short))
    mean_rps = len(arrival_s) / duration_s
    on_fraction = 1.0 / (1.0 + a / (2.0 * mean_rps))

    def process(cv: float) -> OnOff:
        return OnOff(
            kind="on_off",
            on_rps=_rounded(mean_rps / on_fraction),
            on_s=_rounded(1.0 / (r * (1.0 - on_fraction))),
            off_s=_rounded(1.0 / (r * on_fraction)),
            cv=_rounded(cv),
        )

    fitted = _calibrated(process, _ON_OFF_CVS, duration_s, targets, len(arrival_s))
    return [_judged(fitted, duration_s, targets, len(arrival_s))]


def _calibrated(
    process_of: Callable[[float], Process],
    cvs: tuple[float, float],
    duration_s: float,
    targets: Mapping[int, float],
    num_arrivals: int,
) -> Process:
    """The process whose gap CV, within a range, best matches the trace's IDC in the shortest window."""
    shortest = min(targets)
    low, high = cvs
    for _ in range(_CV_HALVINGS):
        cv = math.sqrt(low * high)
        found = np.median(sampled_idc(process_of(cv), duration_s, [shortest], _num_seeds(num_arrivals) // 2))
        low, high = (cv, high) if found < targets[shortest] else (low, cv)
    return process_of(math.sqrt(low * high))


def _judged(
    process: RateSeries | OnOff, duration_s: float, targets: Mapping[int, float], num_arrivals: int
) -> ArrivalFit:
    found = sampled_idc(process, duration_s, list(targets), _num_seeds(num_arrivals))
    low, median, high = np.abs(np.percentile(found, (10, 50, 90), axis=0) / list(targets.values()) - 1.0).max(axis=1)
    return ArrivalFit(process, float(median), float(max(low, high)))


def sampled_idc(process: RateSeries | OnOff, duration_s: float, windows_s: list[int], num_seeds: int) -> Array:
    """IDC of the process by seed and window."""
    found = np.empty((num_seeds, len(windows_s)))
    for seed in range(num_seeds):
        streams = SourceStreams(seed, 0)
        curve = rate_curve(process, duration_s, 1.0, streams)
        arrivals = arrival_times_s(curve, process.cv, streams.generator(ARRIVAL_GAPS))
        found[seed] = [dispersion(arrivals, window, duration_s).idc for window in windows_s]
    return found


def _num_seeds(num_arrivals: int) -> int:
    """Number of seeds; short traces need more because their samples vary more."""
    return max(2, min(_MAX_SEEDS, _ARRIVALS_TO_SAMPLE // num_arrivals))


def _rounded(value: float) -> float:
    """Round to four digits, which is finer than any fit and readable in a file."""
    return float(f"{value:.4g}")
