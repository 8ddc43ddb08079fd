"""The sections of a task file besides its workload: deployment, knobs, reward and grader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from llmserve_env.engine.knobs import NAMES
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.profiles.host import load_host
from llmserve_env.workloads.parts import Count, Fraction, Name, NonNegative, Part, Positive

if TYPE_CHECKING:
    KnobName = str
    TierName = str
else:
    KnobName = Literal[NAMES]
    TierName = Literal[TIER_NAMES]
ComponentName = Literal["throughput", "slo", "ttft", "itl", "cost", "memory", "stability"]
MAX_REPLICAS = 4_096
"""The simulator keeps the whole fleet in memory; a larger one is simulated as several."""
MAX_STEPS = 100_000
Quality = Annotated[tuple[Fraction, ...], Field(min_length=1, description="one figure per tier of the deployment")]


class GrowingPart(Part):
    """A section that has gained fields since tasks were frozen.

    Such a field is not written while it has its default, so that digests do not depend on fields a task does not use.
    """

    later_fields: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_unused_fields(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialise(self)
        for name in self.later_fields:
            if getattr(self, name) == type(self).model_fields[name].default:
                data.pop(name, None)
        return data


class DeploymentSpec(GrowingPart):
    """The fleet: GPU profile, replicas and the limits it is started with."""

    profile: Annotated[str, Field(strict=True, min_length=1, max_length=4096)]
    """A shipped name, or the path of a `.json` profile, relative to the task's file."""
    tiers: tuple[TierName, ...] | None = Field(default=None, min_length=1)
    """Tiers of the profile that are offered, the one to start with first; all of them when not given."""
    replicas: Annotated[int, Field(strict=True, ge=1, le=MAX_REPLICAS)]
    prefill_replicas: Annotated[int, Field(strict=True, ge=0, le=MAX_REPLICAS)] = 0
    memory_limit_gb: Positive
    gpu_memory_utilization: Fraction | None = None
    """When given, memory is accounted for as vLLM does at its start (`profiles.memory`); the KV pool takes the rest."""
    token_budget: Count = 2048
    long_prefill_threshold: Annotated[int, Field(strict=True, ge=0)] = 0
    """Most tokens of one prompt per iteration, so that short prompts join a long one; 0 for no limit."""
    max_model_len: Count = 16_384
    prefix_caching: bool = False
    host: Annotated[str, Field(strict=True, min_length=1, max_length=4096)] | None = None
    """The CPU beside the GPU: a shipped name, or the path of a `.json` host; not given, the GPU alone takes time."""
    host_time_scale: Positive = 1.0
    """Times of the host as multiples of those in its file: below 1 for a faster CPU."""
    async_scheduling: bool | None = None
    """Schedule an iteration while the one before it runs; not given, on if there is a host, as in vLLM."""
    waiting_room: tuple[Count, ...]
    """Waiting requests allowed per replica, one figure per class in order of urgency."""
    bring_up_s: NonNegative = 2.0
    restart_overhead_s: NonNegative = 5.0
    price_usd_per_hour: Positive | None = None
    """Of one GPU; that of the profile when not given. A replica of several GPUs costs as many times that."""
    warm_up_at_cap: bool = False
    """Whether a replica needs memory for the logits of its largest batch; at KV 1.0 a cap above 256 does not fit."""
    later_fields = (
        "tiers",
        "gpu_memory_utilization",
        "price_usd_per_hour",
        "host",
        "host_time_scale",
        "async_scheduling",
        "warm_up_at_cap",
    )

    @field_validator("host")
    @classmethod
    def _known_host(cls, host: str | None) -> str | None:
        if host is not None:
            try:
                load_host(host)
            except ProfileError as error:
                raise ValueError(str(error)) from error
        return host

    @property
    def schedules_ahead(self) -> bool:
        """Whether iterations are scheduled while the one before them runs."""
        return self.host is not None if self.async_scheduling is None else self.async_scheduling


class KnobSpec(Part):
    """Which knobs an agent may change, and how many steps a knob must dwell at a value before its next change."""

    active: tuple[KnobName, ...]
    dwell_steps: dict[str, Count] = Field(default_factory=dict)


class RewardWeights(Part):
    """Weights of the reward terms; overridable at reset."""

    throughput: NonNegative
    latency: NonNegative
    violations: NonNegative
    cost: NonNegative
    memory: NonNegative


class RewardSpec(GrowingPart):
    """What the terms are measured against; docs/metrics.md has the formulas."""

    weights: RewardWeights
    itl_comfort_ms: NonNegative
    """Mean time between tokens below which faster is no better."""
    itl_limit_ms: Positive
    """Mean time between tokens from which slower is no worse."""
    busy_share: Fraction = 0.5
    """Share of a GPU's price billed for busy time; the rest is billed for reserved memory."""
    bill: Literal["busy_and_memory", "gpu_time"] = "busy_and_memory"
    """What is paid for: busy time and reserved memory, or GPUs while they are in service, as clouds charge."""
    memory: Literal["reserved", "pressure"] = "reserved"
    """The memory term: the KV budget in force or the rate of preemptions, or the rate of preemptions alone."""
    class_weights: dict[Name, NonNegative]
    quality: dict[Name, Quality]
    """What an answer is worth to the customer, by tier: a price, not an accuracy."""
    later_fields = ("bill", "memory")

    @model_validator(mode="after")
    def _comfort_is_below_the_limit(self) -> RewardSpec:
        if self.itl_comfort_ms >= self.itl_limit_ms:
            raise ValueError(
                f"itl_comfort_ms must be below itl_limit_ms; got {self.itl_comfort_ms:g} and {self.itl_limit_ms:g}"
            )
        return self


class GraderSpec(GrowingPart):
    """Weights of the score's components; they add up to 1."""

    weights: dict[ComponentName, Fraction]
    from_baseline: tuple[ComponentName, ...] = ()
    """Components measured from `default_knobs` up, instead of from a random agent's figures."""
    counts: Literal["windows", "requests"] = "windows"
    """What components are shares of: means over windows, each alike, or the episode's requests, each alike."""
    later_fields = ("counts",)

    @model_validator(mode="after")
    def _weights_add_up(self) -> GraderSpec:
        if abs(sum(self.weights.values()) - 1.0) > 1e-9:
            raise ValueError(f"grader weights must add up to 1; they add up to {sum(self.weights.values()):g}")
        return self
