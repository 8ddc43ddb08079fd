"""Rate curves, and arrivals that follow them.

Every arrival process consists of a piecewise-constant rate, fixed by the seed, and a renewal process of unit rate in
the time scaled by that rate. The schedule reads the same curve, so it cannot disagree with the arrivals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.arrivals import Bursts, Gamma, Off, OnOff, Poisson, RateSeries, Spikes
from llmserve_env.workloads.streams import RATE_CHANGES, SourceStreams

_DWELLS_PER_DRAW = 64


@dataclass(frozen=True, slots=True)
class RateCurve:
    """Piecewise-constant rate over the episode, and the times of its bursts."""

    edges_s: Array
    rates_rps: Array
    """One rate per piece; a piece lies between two edges."""
    bursts_s: Array
    """Start and end of each burst within the horizon, shape (bursts, 2)."""

    def expected(self) -> Array:
        """Expected arrivals up to each edge."""
        return np.concatenate(([0.0], np.cumsum(self.rates_rps * np.diff(self.edges_s))))

    def preceded_by(self, history_s: float) -> RateCurve:
        """The same curve, extended before the start at its first rate."""
        if history_s == 0.0:
            return self
        edges = np.concatenate(([-history_s], self.edges_s))
        return RateCurve(edges, np.concatenate((self.rates_rps[:1], self.rates_rps)), self.bursts_s)

    def per_second(self, first_s: int, last_s: int) -> Array:
        """Mean rate of each whole second from `first_s` up to `last_s`."""
        return np.diff(np.interp(np.arange(first_s, last_s + 1), self.edges_s, self.expected()))


def rate_curve(
    arrivals: Off | Poisson | Gamma | Bursts | Spikes | RateSeries | OnOff,
    horizon_s: float,
    rate_scale: float,
    streams: SourceStreams,
) -> RateCurve:
    """The rate curve of the process under this seed."""
    match arrivals:
        case Off():
            return _flat(0.0, horizon_s)
        case Poisson() | Gamma():
            return _flat(arrivals.rate_rps * rate_scale, horizon_s)
        case Bursts():
            starts_s = _starts(arrivals, arrivals.period_s, horizon_s, streams)
            rates = np.array([arrivals.base_rps, arrivals.burst_rps]) * rate_scale
            return _with_bursts(rates, starts_s, arrivals.burst_s, horizon_s)
        case Spikes():
            starts_s = _starts(arrivals, arrivals.every_s, horizon_s, streams)
            rates = np.array([1.0, arrivals.factor]) * arrivals.base_rps * rate_scale
            return _with_bursts(rates, starts_s, arrivals.spike_s, horizon_s)
        case RateSeries():
            return _series(arrivals, horizon_s, rate_scale, streams)
        case OnOff():
            return _on_off(arrivals, horizon_s, rate_scale, streams)


def arrival_times_s(curve: RateCurve, cv: float, rng: np.random.Generator) -> Array:
    """Arrivals within the curve, in order."""
    expected = curve.expected()
    ticks = _unit_renewals(float(expected[-1]), cv, rng)
    piece = np.searchsorted(expected, ticks, side="right") - 1
    into_s = (ticks - expected[piece]) / curve.rates_rps[piece]
    # Rounding must not move an arrival over the edge, past the first arrival of the next piece.
    return np.minimum(curve.edges_s[piece] + into_s, curve.edges_s[piece + 1])


def _unit_renewals(end: float, cv: float, rng: np.random.Generator) -> Array:
    """Points of a stationary renewal process of rate 1 below `end`."""
    if end == 0.0:
        return np.empty(0)
    shape = cv**-2
    # The first gap is already under way; without this, bursty processes would start with too many arrivals.
    first = rng.standard_exponential() if cv == 1.0 else rng.standard_gamma(shape + 1.0) / shape * rng.random()
    size = math.ceil(end + 6.0 * max(cv, 1.0) * math.sqrt(end) + 16.0)
    ticks = np.array([first])
    while ticks[-1] < end:
        gaps = rng.standard_exponential(size) if cv == 1.0 else rng.standard_gamma(shape, size) / shape
        ticks = np.concatenate((ticks, ticks[-1] + np.cumsum(gaps)))
    return ticks[: np.searchsorted(ticks, end)]


def _flat(rate_rps: float, horizon_s: float) -> RateCurve:
    return RateCurve(np.array([0.0, horizon_s]), np.array([rate_rps]), np.empty((0, 2)))


def _starts(recurring: Bursts | Spikes, period_s: float, horizon_s: float, streams: SourceStreams) -> Array:
    """Jittered starts, as many as could fall within the horizon."""
    first_s = recurring.first_start_s(period_s)
    count = max(0, math.ceil((horizon_s + recurring.jitter_s - first_s) / period_s))
    jitter_s = streams.generator(RATE_CHANGES).uniform(-recurring.jitter_s, recurring.jitter_s, count)
    starts_s = first_s + period_s * np.arange(count) + jitter_s
    return starts_s[starts_s < horizon_s]


def _with_bursts(rates: Array, starts_s: Array, burst_s: float, horizon_s: float) -> RateCurve:
    """Base and burst rate, alternating."""
    spans = np.minimum(np.column_stack((starts_s, starts_s + burst_s)), horizon_s)
    edges = np.concatenate(([0.0], spans.ravel(), [horizon_s]))
    return RateCurve(edges, rates[np.arange(len(edges) - 1) % 2], spans)


def _series(series: RateSeries, horizon_s: float, rate_scale: float, streams: SourceStreams) -> RateCurve:
    slack_s = series.duration_s if series.cyclic else series.duration_s - horizon_s
    offset_s = streams.generator(RATE_CHANGES).random() * slack_s if series.random_start else 0.0
    first = int(offset_s / series.step_s)
    last = math.ceil((offset_s + horizon_s) / series.step_s)
    edges = np.clip(np.arange(first, last + 1) * series.step_s - offset_s, 0.0, horizon_s)
    edges[-1] = horizon_s
    rates = np.array(series.rates_rps)[np.arange(first, last) % len(series.rates_rps)]
    return RateCurve(edges, rates * rate_scale, np.empty((0, 2)))


def _on_off(process: OnOff, horizon_s: float, rate_scale: float, streams: SourceStreams) -> RateCurve:
    """Alternating ON and OFF periods; the first one is already under way, as in steady state."""
    rng = streams.generator(RATE_CHANGES)
    on_first = rng.random() < process.on_s / (process.on_s + process.off_s)
    order = np.array([0, 1] if on_first else [1, 0])
    means = np.array([process.on_s, process.off_s])[order]
    sigmas = np.sqrt(np.log1p(np.array([process.on_cv, process.off_cv])[order] ** 2))
    changes_s = [0.0]
    while changes_s[-1] < horizon_s:
        if process.dwell == "exponential":
            dwell = means * rng.standard_exponential((_DWELLS_PER_DRAW, 2))
        else:
            dwell = means * np.exp(sigmas * rng.standard_normal((_DWELLS_PER_DRAW, 2)) - sigmas**2 / 2)
            if len(changes_s) == 1:
                # A length-biased period cut at a uniform point is the rest of the period under way at the start.
                dwell[0, 0] *= math.exp(sigmas[0] ** 2) * rng.random()
        changes_s += (changes_s[-1] + np.cumsum(dwell.ravel())).tolist()
    edges = np.array(changes_s)
    edges = np.append(edges[edges < horizon_s], horizon_s)
    state = order[np.arange(len(edges) - 1) % 2]
    rates = np.array([process.on_rps, process.off_rps])[state] * rate_scale
    spans = np.column_stack((edges[:-1], edges[1:]))[state == 0]
    return RateCurve(edges, rates, spans)
