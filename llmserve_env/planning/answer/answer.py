"""The answer as data: what was tried, what is recommended, and how it did on traffic that no search had seen."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.request_outcomes import RequestFigures
from llmserve_env.units import S_PER_HOUR

FORMAT = 1
"""Version of the stored file; answers of an older one are computed again."""


class _Stored(BaseModel):
    """A part of the stored file."""

    # Latencies of lost requests are infinite, for which JSON has no number.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Promise(_Stored):
    """An objective and how it came out."""

    text: str
    class_name: str
    latency: str
    limit_ms: float
    share: float | None
    value: float
    low: float
    high: float
    is_kept: bool
    is_sure: bool
    margin: float

    @property
    def kept_share(self) -> float:
        """The share of requests within the limit; for a mean, the limit divided by the mean, at most 1."""
        if self.share is not None:
            return self.value
        return min(self.limit_ms / self.value, 1.0) if self.value > 0.0 else 1.0

    @property
    def value_text(self) -> str:
        """The value with its interval."""
        if self.share is None:
            return f"{self.value:,.1f} ms [{self.low:,.1f}, {self.high:,.1f}]"
        return f"{self.value:.2%} [{self.low:.2%}, {self.high:.2%}]"


class Configured(_Stored):
    """A configuration on a fleet, and how its promises came out on the seeds of the search."""

    profile: str
    replicas: int
    tier: int
    knobs: dict[str, Any]
    usd_per_hour: float
    promises: tuple[Promise, ...]

    @property
    def tier_name(self) -> str:
        return TIER_NAMES[self.tier]

    @property
    def gpu(self) -> str:
        """The short name of the card."""
        return self.profile.split("/")[-1].split(".")[0]

    @property
    def is_kept(self) -> bool:
        return all(promise.is_kept for promise in self.promises)

    @property
    def is_sure(self) -> bool:
        return all(promise.is_sure for promise in self.promises)

    @property
    def kept_share(self) -> float:
        """How well the worst promise is kept (`Promise.kept_share`)."""
        return min(promise.kept_share for promise in self.promises)

    @property
    def worst(self) -> Promise:
        """The promise with the smallest margin."""
        return min(self.promises, key=lambda promise: promise.margin)


class Followed(Configured):
    """A configuration simulated on fresh seeds: its promises and figures are those of that traffic."""

    throughput_tps: float
    requests: dict[str, float | None]
    """Percentiles, shares and losses over all requests (`RequestFigures.as_dict`)."""

    @property
    def usd_per_million_output_tokens(self) -> float:
        """GPU hours over tokens written."""
        per_hour = self.throughput_tps * S_PER_HOUR
        return self.usd_per_hour / per_hour * 1e6 if per_hour else float("inf")

    @property
    def lost_share(self) -> float:
        return (self.requests["lost"] or 0.0) / max(self.requests["requests"] or 0.0, 1.0)


class Option(_Stored):
    """The smallest fleet of one GPU and tier that keeps every promise, and the fleets tried to find it."""

    profile: str
    tier: int
    price_usd_per_hour: float
    replicas: int | None
    """None if not even the largest fleet allowed keeps them."""
    points: tuple[Configured, ...]
    """The fleets tried, by size, each with its best configuration."""
    is_monotone: bool
    """Whether every larger fleet that was tried did at least as well; where not, all sizes below were tried."""

    @property
    def tier_name(self) -> str:
        return TIER_NAMES[self.tier]

    @property
    def best(self) -> Configured | None:
        """The smallest fleet that keeps the promises."""
        return next((point for point in self.points if point.replicas == self.replicas), None)


class Answer(_Stored):
    """Everything that check, tune, capacity and report say about a task."""

    format: int = FORMAT
    task_id: str
    protocol: dict[str, Any]
    prices: tuple[str, ...]
    """Prices of a GPU hour, with their sources."""
    impossible: tuple[str, ...]
    """Promises that even an almost idle fleet breaks, in words."""
    options: tuple[Option, ...]
    recommended: Followed | None
    """The cheapest fleet and configuration; None where no fleet keeps the promises."""
    own: Followed
    """The task's own fleet with its best configuration."""
    default_knobs: Followed
    vllm_defaults: Followed
    """The same fleet with the environment's and with vLLM's defaults."""
    search_seeds: str
    fresh_seeds: str
    rounds: int
    """Recommendations that did not hold on fresh seeds before this one; their seeds joined the search."""

    @property
    def is_own_fleet_enough(self) -> bool:
        """Whether the task's fleet keeps its promises on fresh traffic."""
        return self.own.is_kept


def seeds_text(seeds: tuple[int, ...]) -> str:
    """Ranges of consecutive seeds."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ", ".join(f"{first}..{last}" for first, last in ranges)


def stored_figures(figures: RequestFigures) -> dict[str, float | None]:
    """Figures for the file, rounded to six decimals."""
    return {name: None if value is None else round(value, 6) for name, value in figures.as_dict().items()}
