"""What became of the requests of an episode, and the figures that people read: percentiles and shares of requests.

Percentiles are pooled over requests and are exact: the 99th is the latency that 99 of 100 requests do not exceed, so
`p99 <= limit` and "at least 99 % within the limit" are the same statement. docs/metrics.md has the definitions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Literal, Self, get_args

import numpy as np

from llmserve_env.arrays import Array

LatencyName = Literal["ttft", "tpot", "e2e"]
LATENCIES: tuple[LatencyName, ...] = get_args(LatencyName)
PERCENTILES = (50, 90, 99)


class Ending(IntEnum):
    """How a request stands at the end of the episode."""

    FINISHED = 0
    UNDER_WAY = 1
    REJECTED = 2
    ABANDONED = 3


@dataclass(frozen=True, slots=True)
class RequestOutcomes:
    """One row per request that arrived, in order of arrival; the columns are arrays."""

    arrival_s: Array
    class_index: Array
    prompt_tokens: Array
    output_tokens: Array
    """Tokens that the finished answer has."""
    tier: Array
    """Precision of the replica that produced the first token."""
    ending: Array
    """How each request stands, as an `Ending`."""
    age_ms: Array
    """Time from the arrival to the end of the episode."""
    ttft_ms: Array
    """Infinite for a request that was lost before its first token; NaN for one that still waits."""
    tpot_ms: Array
    """Time per output token after the first; NaN unless the request finished with at least two tokens."""
    e2e_ms: Array
    """Time from the arrival to the last token; infinite for a lost request, NaN for one under way."""
    ttft_slo_ms: Array
    """What the request was promised; infinite without a promise. The next two likewise."""
    tpot_slo_ms: Array
    e2e_slo_ms: Array

    def __len__(self) -> int:
        return len(self.arrival_s)

    @classmethod
    def pooled(cls, parts: Sequence[Self]) -> Self:
        """The requests of several episodes together."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})

    def take(self, rows: Array) -> Self:
        """The given rows (a mask or an index array), in order."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    @property
    def is_lost(self) -> Array:
        """Whether each request was rejected or abandoned."""
        return np.asarray((self.ending == Ending.REJECTED) | (self.ending == Ending.ABANDONED))

    def slo_ms(self, latency: LatencyName) -> Array:
        """What each request was promised for this latency."""
        limits: Array = getattr(self, f"{latency}_slo_ms")
        return limits

    def decided_ms(self, latency: LatencyName, limit_ms: float | None = None) -> Array:
        """The latency of every request, NaN where it is still open.

        A request that is under way but already later than promised (or than another limit, where one is given) counts
        with its age: it has missed, as it does in the window's judgement.
        """
        values: Array = getattr(self, f"{latency}_ms")
        if latency == "tpot":
            return values
        is_overdue = np.isnan(values) & (self.age_ms > (self.slo_ms(latency) if limit_ms is None else limit_ms))
        return np.where(is_overdue, self.age_ms, values)

    def is_met(self, latency: LatencyName) -> Array:
        """1 where a request kept its promise, 0 where it did not, NaN where that is open or nothing was promised."""
        values, limits = self.decided_ms(latency), self.slo_ms(latency)
        is_open = np.isnan(values) | np.isinf(limits)
        return np.where(is_open, np.nan, values <= limits)


@dataclass(frozen=True, slots=True)
class LatencyFigures:
    """One latency over many requests, in milliseconds: infinite where the request of that rank was lost."""

    num_requests: int
    mean_ms: float
    percentiles_ms: dict[int, float]
    within_slo: float | None
    """Share of the requests with a promise that it was kept for; None where none was made or judged."""

    def __getitem__(self, percentile: int) -> float:
        return self.percentiles_ms[percentile]


@dataclass(frozen=True, slots=True)
class RequestFigures:
    """The figures of a set of requests."""

    num_requests: int
    num_finished: int
    num_under_way: int
    num_rejected: int
    num_abandoned: int
    ttft: LatencyFigures
    tpot: LatencyFigures
    e2e: LatencyFigures

    @property
    def num_lost(self) -> int:
        return self.num_rejected + self.num_abandoned

    def as_dict(self) -> dict[str, float | None]:
        """Flat, for JSON: an infinite latency (the request of that rank was lost) is None."""
        counts = ("requests", "finished", "under_way", "rejected", "abandoned", "lost")
        found: dict[str, float | None] = {name: getattr(self, f"num_{name}") for name in counts}
        for latency in LATENCIES:
            figures: LatencyFigures = getattr(self, latency)
            found |= {f"{latency}_p{p}_ms": _finite(value) for p, value in figures.percentiles_ms.items()}
            found |= {f"{latency}_mean_ms": _finite(figures.mean_ms), f"{latency}_within_slo": figures.within_slo}
        return found


def percentile_ms(sorted_ms: Array, percent: float) -> float:
    """The smallest value that this percentage of the (sorted) values does not exceed; NaN without values."""
    n = len(sorted_ms)
    # Rounded, so that 95 % of 20 is the 19th and not, for a rounding error, the 20th.
    rank = math.ceil(round(percent * n / 100.0, 9))
    return float(sorted_ms[max(rank, 1) - 1]) if n else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class RequestSample:
    """The part of an episode's requests that figures need; small enough to keep for every episode of an evaluation."""

    endings: tuple[int, ...]
    """Requests per `Ending`."""
    decided_ms: dict[LatencyName, Array]
    judged: dict[LatencyName, tuple[int, int]]
    """Requests whose promise was judged, and those among them for which it was kept."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, RequestSample)
            and (self.endings, self.judged) == (other.endings, other.judged)
            and all(np.array_equal(self.decided_ms[name], other.decided_ms[name]) for name in LATENCIES)
        )


def sample_of(outcomes: RequestOutcomes) -> RequestSample:
    """The sample of one episode, or of any selection of requests."""
    decided, judged = {}, {}
    for latency in LATENCIES:
        values, met = outcomes.decided_ms(latency), outcomes.is_met(latency)
        decided[latency] = values[~np.isnan(values)]
        judged[latency] = (int(np.count_nonzero(~np.isnan(met))), int(np.nansum(met)))
    return RequestSample(tuple(np.bincount(outcomes.ending, minlength=len(Ending)).tolist()), decided, judged)


def pooled_figures(samples: Sequence[RequestSample]) -> RequestFigures:
    """The figures of all requests of these samples together."""
    finished, under_way, rejected, abandoned = np.sum([sample.endings for sample in samples], axis=0).tolist()
    ttft, tpot, e2e = (_latency_figures(samples, latency) for latency in LATENCIES)
    total = finished + under_way + rejected + abandoned
    return RequestFigures(total, finished, under_way, rejected, abandoned, ttft, tpot, e2e)


def request_figures(outcomes: RequestOutcomes) -> RequestFigures:
    """The figures of these requests."""
    return pooled_figures([sample_of(outcomes)])


def _latency_figures(samples: Sequence[RequestSample], latency: LatencyName) -> LatencyFigures:
    values = np.sort(np.concatenate([sample.decided_ms[latency] for sample in samples]))
    judged, met = np.sum([sample.judged[latency] for sample in samples], axis=0).tolist()
    return LatencyFigures(
        num_requests=len(values),
        mean_ms=float(values.mean()) if len(values) else math.nan,
        percentiles_ms={p: percentile_ms(values, p) for p in PERCENTILES},
        within_slo=met / judged if judged else None,
    )


def latency_text(value_ms: float, digits: int = 0) -> str:
    """A latency as people read it: `lost` where the request of that rank was never served, a dash without requests."""
    if math.isnan(value_ms):
        return "–"
    return "lost" if math.isinf(value_ms) else f"{value_ms:,.{digits}f} ms"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
