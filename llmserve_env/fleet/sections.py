"""The sections of a fleet task's file: replicas, pools, zones, traffic, batch work, promises and prices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from llmserve_env.engine.deployment import MAX_RUNNING, MAX_TOKEN_BUDGET
from llmserve_env.engine.fleet import Role
from llmserve_env.workloads.parts import Count, Fraction, Name, NonNegative, Part, Positive

Purchase = Literal["on_demand", "spot", "reserved"]
MAX_POOL = 512


class ReplicaSpec(Part):
    """One replica: what it runs, and the limits that its engine is started with."""

    profile: Annotated[str, Field(strict=True, min_length=1, max_length=4096)]
    tier: Name
    """Precision of the weights; it stays as it is, because a reload costs as much as a boot."""
    max_running: Annotated[int, Field(strict=True, ge=1, le=MAX_RUNNING)] = 256
    token_budget: Annotated[int, Field(strict=True, ge=1, le=MAX_TOKEN_BUDGET)] = 8192
    """Most tokens of an iteration; a decision may ask for fewer."""
    max_model_len: Count = 32_768
    block_tokens: Count = 256
    """Coarser than an engine's 16, for speed; a request wastes half a block on average."""
    affinity_slack: Annotated[int, Field(strict=True, ge=-1)] = -1
    """How much more load a session's home may have than the least loaded replica; -1 sends no request home."""
    prefix_caching: bool = False


class BootSpec(Part):
    """How long a launch takes: log-normal, and now and then in vain."""

    median_s: Positive
    sigma: NonNegative = 0.2
    failure_probability: Annotated[float, Field(strict=True, ge=0.0, lt=1.0)] = 0.0


class PoolSpec(Part):
    """Replicas of one kind, role and purchase."""

    name: Name
    purchase: Purchase = "on_demand"
    role: Role = "any"
    zone: Name | None = None
    """Where a spot pool lives; its availability follows that zone."""
    max_replicas: Annotated[int, Field(strict=True, ge=1, le=MAX_POOL)]
    min_replicas: Annotated[int, Field(strict=True, ge=0)] = 0
    """Fewer may not be ordered."""
    max_asleep: Annotated[int, Field(strict=True, ge=0)] = 0
    """Replicas that may be ordered to sleep; 0 leaves sleeping out of the problem."""
    usual_replicas: Annotated[int, Field(strict=True, ge=0)]
    """Replicas at the task's mean load; an episode starts with as many, scaled to the load at its start."""
    boot: BootSpec
    wake_s: Positive = 5.0
    drain_limit_s: NonNegative = 60.0
    notice_s: NonNegative = 30.0
    partner: Name | None = None
    """The pool whose replicas may change into this one's."""
    flip_s: NonNegative = 0.0

    @model_validator(mode="after")
    def _counts_fit(self) -> PoolSpec:
        for name in ("min_replicas", "max_asleep", "usual_replicas"):
            if getattr(self, name) > self.max_replicas:
                raise ValueError(f"{name} must be at most max_replicas, {self.max_replicas}; got {getattr(self, name)}")
        if (self.purchase == "spot") != (self.zone is not None):
            raise ValueError("a spot pool names its zone, and only a spot pool does")
        return self


class ZoneSpec(Part):
    """Spot capacity of one zone, which comes and goes."""

    name: Name
    region: Name
    availability: Annotated[float, Field(strict=True, gt=0.0, lt=1.0)]
    """Share of the time that it has capacity."""
    losses_per_day: Positive


class LengthSpec(Part):
    """A log-normal number of tokens, at most `most`."""

    median: Positive
    sigma: NonNegative
    most: Count


class KindSpec(Part):
    """One kind of traffic: single requests, or sessions of turns."""

    name: Name
    share: Annotated[float, Field(strict=True, gt=0.0, le=1.0)]
    """Of all requests, on average."""
    turns: Annotated[float, Field(strict=True, ge=1.0, le=64.0)] = 1.0
    """Mean turns of a session, the opening one included."""
    setup_s: NonNegative = 0.0
    """Median time between the opening turn and the next: an agent prepares its workspace."""
    setup_sigma: NonNegative = 0.3
    gap_s: NonNegative = 0.0
    """Median time between later turns, answer included."""
    gap_sigma: NonNegative = 0.6
    opening: LengthSpec
    """Prompt of the opening turn."""
    added: LengthSpec | None = None
    """What each later turn adds to the conversation."""
    output: LengthSpec
    has_crowds: bool = False
    drift: NonNegative = 0.0
    """Standard deviation of the logarithm of its share, which wanders over hours."""

    @model_validator(mode="after")
    def _sessions_have_gaps(self) -> KindSpec:
        if self.turns > 1.0 and (self.added is None or self.gap_s <= 0.0):
            raise ValueError(f"sessions of {self.turns:g} turns need gap_s above 0 and added")
        return self


class CrowdSpec(Part):
    """Bursts of session starts: a link goes around, a class begins, a pipeline wakes up."""

    per_day: NonNegative
    size: Positive
    """Median of the extra starts, as a multiple of the usual ones."""
    size_sigma: NonNegative = 0.4
    length_s: Positive
    """Median length."""
    length_sigma: NonNegative = 0.4


class TrafficSpec(Part):
    """Requests of clients who wait for them."""

    mean_rps: Positive
    """The series is rescaled to this mean."""
    kinds: Annotated[tuple[KindSpec, ...], Field(min_length=1, max_length=8)]
    crowds: CrowdSpec | None = None
    patience_s: Positive = 60.0
    """A client without a first token by then gives up."""

    @model_validator(mode="after")
    def _shares_add_up(self) -> TrafficSpec:
        total = sum(kind.share for kind in self.kinds)
        if abs(total - 1.0) > 1e-9:
            raise ValueError(f"the shares of the kinds must add up to 1; they add up to {total:g}")
        return self


class BatchSpec(Part):
    """Work that may wait for hours and sells at a part of the price."""

    mean_rps: Positive
    """Arrivals at the load's mean; they come in loads of `jobs_per_load`."""
    jobs_per_load: Count = 500
    deadline_s: Positive
    max_admission_rps: Positive
    """What a `batch_share` of 1 admits."""
    prompt: LengthSpec
    output: LengthSpec


class SloSpec(Part):
    """The promise for each request of a waiting client: both must hold."""

    ttft_ms: Positive
    tpot_ms: Positive


class CreditRung(Part):
    """Below this attainment, this share of the income is given back."""

    below: Fraction
    share: Fraction


class PriceSpec(Part):
    """What is paid for a GPU-hour and for tokens, in dollars."""

    source: str
    """Where the prices are from, and when."""
    gpu_hour_usd: dict[Purchase, Positive]
    asleep_share: Fraction = 0.3
    """Part of its price that a sleeping replica costs."""
    prompt_usd_per_million: NonNegative
    cached_usd_per_million: NonNegative
    """For tokens that a session's earlier turns had sent or received."""
    output_usd_per_million: NonNegative
    batch_share: Fraction = 0.5
    credits: tuple[CreditRung, ...] = ()
    """From the highest attainment to the lowest; between two rungs the share is interpolated."""

    @model_validator(mode="after")
    def _rungs_descend(self) -> PriceSpec:
        for high, low in zip(self.credits, self.credits[1:], strict=False):
            if low.below >= high.below or low.share < high.share:
                raise ValueError("credits must go from the highest attainment to the lowest, with growing shares")
        return self
