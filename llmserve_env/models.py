"""Wire types: what travels between clients and the server. Names are fixed; values are checked once, here."""

from __future__ import annotations

from enum import IntEnum
from math import nan
from typing import TYPE_CHECKING, Annotated, Any, Literal

from openenv.core.env_server.types import Action, Observation, State
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationInfo,
    create_model,
    field_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from llmserve_env.engine.knobs import KNOB, KNOBS, NAMES, Knob
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import InvalidActionError

WIRE_TYPES: dict[str, Any] = {"int": int, "float": float, "bool": bool, "tier": Literal[TIER_NAMES]}
Mode = Literal["sim", "real", "table"]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Shares = Annotated[list[Share], Field(min_length=3, max_length=3)]

if TYPE_CHECKING:

    class QuantTier(IntEnum):
        """The tiers by the plan's name."""

        FP16 = 0
        INT8 = 1
        INT4 = 2

else:
    QuantTier = IntEnum("QuantTier", TIER_NAMES, start=0, module=__name__)


class KnobAction(Action):
    """The part of every action that does not depend on which knobs there are."""

    model_config = ConfigDict(
        populate_by_name=True,
        json_schema_extra={
            "examples": [{"batch_cap": 96, "kv_budget_fraction": 0.8, "speculation_depth": 2, "priority_routing": True}]
        },
    )

    if TYPE_CHECKING:

        def __init__(self, **fields: Any) -> None: ...

    @field_validator(*NAMES, mode="before", check_fields=False)
    @classmethod
    def _in_range(cls, value: Any, info: ValidationInfo) -> Any:
        knob = KNOB[str(info.field_name)]
        if value is None and knob.default is None:
            return None
        try:
            return knob.wire(knob.number(value))
        except InvalidActionError as error:
            # OpenEnv sends the error's context as JSON, which a ValueError's context is not.
            raise PydanticCustomError("knob_out_of_range", "{reason}", {"reason": str(error)}) from error

    def numbers(self) -> list[float]:
        """A row of the knob matrix, with the default for a field left out; NaN for a knob left to the deployment."""
        return [self._number(knob) for knob in KNOBS]

    def changes(self) -> tuple[tuple[int, float], ...]:
        """The fields that were given, as columns and values of the knob matrix."""
        given = self.model_fields_set
        return tuple((knob.column, self._number(knob)) for knob in KNOBS if knob.name in given)

    def _number(self, knob: Knob) -> float:
        value = getattr(self, knob.name)
        return nan if value is None else knob.number(value)


def _wire_field(knob: Knob) -> tuple[Any, Any]:
    """Type and field of a knob on the wire, from its row of the table."""
    bounds: JsonDict = {"minimum": knob.low, "maximum": knob.high} if knob.kind in ("int", "float") else {}
    names = AliasChoices(knob.name, knob.alias) if knob.alias else AliasChoices(knob.name)
    is_given = knob.default is not None
    text = f"{knob.meaning}: {knob.allowed}{'' if is_given else '; left out, as the deployment was started'}"
    default = knob.wire(knob.default) if knob.default is not None else None
    kind = WIRE_TYPES[knob.kind] if is_given else WIRE_TYPES[knob.kind] | None
    return kind, Field(default=default, description=text, json_schema_extra=bounds, validation_alias=names)


if TYPE_CHECKING:

    class ServeAction(KnobAction):
        """A field per knob; a type checker cannot see the table."""

        def __getattr__(self, name: str) -> Any: ...

else:
    ServeAction = create_model(
        "ServeAction",
        __base__=KnobAction,
        __module__=__name__,
        __doc__="The knobs for the next window. A field left out keeps the value last asked for; nothing is clamped.",
        **{knob.name: _wire_field(knob) for knob in KNOBS},
    )


class ServeObservation(Observation):
    """The window just served, as an operator's dashboard would show it; docs/metrics.md defines every figure."""

    queue_depth: Count = Field(default=0, description="requests waiting at the end of the window, over all replicas")
    active_requests: Count = Field(
        default=0, description="requests running at the end of the window, over all replicas"
    )
    kv_cache_occupancy: Share = Field(default=0.0, description="share of the KV blocks in service that are used")
    mean_prompt_length: Amount = Field(
        default=0.0, description="prompt tokens per request, moving average over 10 windows"
    )
    p50_ttft_ms: Amount = Field(default=0.0, description="median time to first token over the last 10 windows")
    p99_ttft_ms: Amount = Field(
        default=0.0, description="99th percentile of time to first token over the last 10 windows"
    )
    p50_itl_ms: Amount = Field(default=0.0, description="median gap between output tokens in the window")
    throughput_tps: Amount = Field(default=0.0, description="output tokens per second in the window")
    slo_compliance_rate: Share = Field(
        default=1.0, description="share of requests that met their SLO over the last 10 windows"
    )
    slo_violation_rate: Share = Field(default=0.0, description="1 - slo_compliance_rate")
    gpu_memory_used_gb: Amount = Field(default=0.0, description="peak memory of the fullest GPU in the window, GB")
    estimated_cost_per_1k: Amount = Field(default=0.0, description="USD per 1,000 output tokens of the window")
    request_arrival_rate: Amount = Field(default=0.0, description="requests per second, moving average over 10 windows")
    spec_acceptance_rate: Share = Field(default=0.0, description="share of draft tokens accepted in the window")
    eviction_events: Count = Field(default=0, description="requests that lost their KV blocks in the window")
    priority_distribution: Shares = Field(
        default=[0.0, 0.0, 0.0], description="share of arrivals: interactive, batch, best effort"
    )
    cost_so_far: Amount = Field(default=0.0, description="USD billed since reset")
    step_index: Count = Field(default=0, description="windows served since reset")
    task_id: str = Field(default="", description="task of the episode")
    reward: FiniteFloat | None = Field(default=None, description="reward of the step, in [-1, 1]; none at reset")
    done: bool = Field(default=False, description="whether the episode is over")
    metadata: dict[str, Any] = Field(
        default_factory=dict,
        description="reward terms, phase of the traffic, counts, knobs in force, held and masked knobs, mode, versions",
    )


class ServeState(State):
    """The state of an episode."""

    episode_id: str | None = Field(default=None, description="id of the episode; over HTTP the session id")
    step_count: Count = Field(default=0, description="windows served since reset")
    task_id: str | None = None
    seed: int | None = None
    episode_length: Count = 0
    cumulative_reward: FiniteFloat = 0.0
    done: bool = False
    phase: str | None = Field(default=None, description="warmup, steady, burst or cooldown")
    workload_phase: str | None = Field(default=None, description="the same as phase, by the plan's name")
    totals: dict[str, FiniteFloat] = Field(default_factory=dict, description="sums since reset")
    score: Share | None = Field(default=None, description="grade of the finished episode")


class WireModel(BaseModel):
    """Base of this package's wire types: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class MetricsSnapshot(WireModel):
    """The window just served by the plan's names: `info.metrics` of /step."""

    ttft_p50_ms: Amount
    ttft_p99_ms: Amount
    tpot_ms: Amount = Field(description="median time between output tokens")
    tps: Amount = Field(description="output tokens per second")
    gpu_mem_gb: Amount
    cost_per_1k: Amount = Field(description="USD per 1,000 output tokens")
    spec_acceptance_rate: Share
    eviction_events: Count
    slo_violations: Count = Field(description="requests judged in the window that missed their SLO")
    oom: bool = Field(description="whether a replica ran out of memory")


class WorkloadState(WireModel):
    """The traffic of the window just served by the plan's names: `info.workload` of /step."""

    arrival_rate: Amount = Field(description="requests per second, moving average over 10 windows")
    mean_prompt_len: Amount = Field(description="prompt tokens per request, moving average over 10 windows")
    prompt_len_bucket: Annotated[int, Field(ge=0, le=7)] = Field(
        description="bucket of the mean prompt; upper bounds 64, 128, 256, 512, 1024, 2048, 4096, and longer"
    )
    queue_depth: Count
    priority_distribution: Shares
    is_burst: bool
    phase: str = Field(description="warmup, steady, burst or cooldown")


class EpisodeLog(WireModel):
    """The seed and actions that determine an episode. Grading replays them, and checks the rewards that it claims."""

    task_id: str = Field(max_length=200)
    task_version: int = Field(ge=1)
    environment_version: str = Field(max_length=50)
    seed: int = Field(ge=0, le=2**32 - 1)
    actions: list[ServeAction] = Field(description="one per step, in order")
    rewards: list[FiniteFloat] = Field(
        default_factory=list, description="rewards as received, one per action; may be empty"
    )
    mode: Mode = Field(default="sim", description="what served the requests; only a simulation can be replayed")


class PlanReport(WireModel):
    """A score by the formula of the plan, with its reasons."""

    score: Share
    breakdown: dict[str, FiniteFloat] = Field(description="a value in [0, 1] per component")
    feedback: str


class GradeReport(WireModel):
    """A score with its reasons."""

    task_id: str
    seed: int
    steps: Count
    score: Share
    breakdown: dict[str, FiniteFloat]
    feedback: str
    requests: dict[str, FiniteFloat | None] = Field(
        default_factory=dict,
        description="counts, latency percentiles and shares within SLO over the episode's requests; "
        "null for a percentile whose request was lost",
    )
    mode: Mode = Field(
        default="sim", description="what served the requests; scores of different modes are not comparable"
    )
    plan: PlanReport | None = Field(default=None, description="the score by the plan's formula, for its three tasks")
