"""Arrival processes as data; `rates.py` turns each into a rate curve."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from llmserve_env.workloads.parts import NonNegative, Part, Positive

WARMUP_S = 10.0
"""No burst starts this early in an episode, so that every controller sees the base load first."""

Rate = NonNegative
Variation = Annotated[float, Field(strict=True, gt=0.0, le=50.0, allow_inf_nan=False)]
"""Coefficient of variation: 1 is Poisson, more is burstier."""


class Off(Part):
    """No arrivals."""

    kind: Literal["off"]


class Poisson(Part):
    """Independent arrivals at a constant rate."""

    kind: Literal["poisson"]
    rate_rps: Rate


class Gamma(Part):
    """Gamma-distributed gaps at a constant mean rate."""

    kind: Literal["gamma"]
    rate_rps: Rate
    cv: Variation


class _Recurring(Part):
    jitter_s: NonNegative = 0.0
    """Each start is moved by up to this much in either direction."""
    first_s: NonNegative | None = None
    """Nominal start of the first burst; by default half a period, or as soon after the warm-up as jitter allows."""

    def _check(self, period_s: float, duration_s: float) -> None:
        if duration_s + 2 * self.jitter_s > period_s:
            raise ValueError(
                f"{duration_s} s every {period_s} s with jitter_s {self.jitter_s} could overlap; "
                f"jitter_s must be at most {(period_s - duration_s) / 2}"
            )
        if self.first_s is not None and self.first_s - self.jitter_s < WARMUP_S:
            raise ValueError(
                f"first_s must be at least {WARMUP_S} + jitter_s, which keeps the warm-up quiet; got {self.first_s}"
            )

    def first_start_s(self, period_s: float) -> float:
        """Nominal start of the first burst."""
        return max(period_s / 2, WARMUP_S + self.jitter_s) if self.first_s is None else self.first_s


class Bursts(_Recurring):
    """Poisson arrivals with bursts of a higher rate about every `period_s`."""

    kind: Literal["bursts"]
    base_rps: Rate
    burst_rps: Rate
    period_s: Positive
    burst_s: Positive

    @model_validator(mode="after")
    def _burst_once_at_a_time(self) -> Bursts:
        self._check(self.period_s, self.burst_s)
        return self


class Spikes(_Recurring):
    """Poisson arrivals whose rate is multiplied by `factor` about every `every_s`."""

    kind: Literal["spikes"]
    base_rps: Rate
    factor: Positive
    every_s: Positive
    spike_s: Positive

    @model_validator(mode="after")
    def _spike_once_at_a_time(self) -> Spikes:
        self._check(self.every_s, self.spike_s)
        return self


class RateSeries(Part):
    """A piecewise-constant rate, as fitted to a trace, with gamma-distributed gaps in rate-scaled time."""

    kind: Literal["rate_series"]
    step_s: Positive
    rates_rps: tuple[Rate, ...] = Field(min_length=1)
    cv: Variation = 1.0
    cyclic: bool = Field(default=False, strict=True)
    """Repeat the series when it ends; otherwise it must cover the horizon."""
    random_start: bool = Field(default=False, strict=True)
    """Start at a seeded point of the series instead of at its beginning."""

    @property
    def duration_s(self) -> float:
        return self.step_s * len(self.rates_rps)


class OnOff(Part):
    """Periods of traffic and of (almost) no traffic, with random lengths; in steady state from the start."""

    kind: Literal["on_off"]
    on_rps: Rate
    on_s: Positive
    """Mean length of a period of traffic."""
    off_s: Positive
    off_rps: Rate = 0.0
    dwell: Literal["exponential", "lognormal"] = "exponential"
    on_cv: Variation = 1.0
    off_cv: Variation = 1.0
    cv: Variation = 1.0
    """Coefficient of variation of the gaps between arrivals."""

    @model_validator(mode="after")
    def _exponential_has_no_shape(self) -> OnOff:
        if self.dwell == "exponential" and (self.on_cv, self.off_cv) != (1.0, 1.0):
            raise ValueError("on_cv and off_cv are 1 for exponential dwell times; use dwell: lognormal to set them")
        return self


Arrivals = Annotated[
    Off | Poisson | Gamma | Bursts | Spikes | RateSeries | OnOff,
    Field(discriminator="kind"),
]


def peak_rps(arrivals: Off | Poisson | Gamma | Bursts | Spikes | RateSeries | OnOff) -> float:
    """The highest rate of the process."""
    match arrivals:
        case Poisson() | Gamma():
            return arrivals.rate_rps
        case Bursts():
            return max(arrivals.base_rps, arrivals.burst_rps)
        case Spikes():
            return arrivals.base_rps * max(1.0, arrivals.factor)
        case RateSeries():
            return max(arrivals.rates_rps)
        case OnOff():
            return max(arrivals.on_rps, arrivals.off_rps)
        case Off():
            return 0.0


def gap_cv(arrivals: Off | Poisson | Gamma | Bursts | Spikes | RateSeries | OnOff) -> float:
    """Coefficient of variation of the gaps in rate-scaled time, in which the rate is constant."""
    return arrivals.cv if isinstance(arrivals, Gamma | RateSeries | OnOff) else 1.0
