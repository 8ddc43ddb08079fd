"""Wire types: what travels between clients and the server. Names are fixed; values are checked once, here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from openenv.core.env_server.types import Action, Observation, State
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, FiniteFloat, ValidationInfo, field_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import KNOBS, ServingKnobs
from llmserve_env.errors import InvalidActionError

KNOB_BY_NAME = {knob.name: knob for knob in KNOBS}
DEFAULTS = ServingKnobs()
Tier = Literal["FP16", "INT8", "INT4"]
Mode = Literal["sim", "real"]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


def _knob(name: str, default: Any) -> Any:
    """A field of the action: description, default and alias from the table of knobs."""
    knob = KNOB_BY_NAME[name]
    bounds: JsonDict = {"minimum": knob.low, "maximum": knob.high} if knob.kind in ("int", "float") else {}
    names = AliasChoices(name, knob.alias) if knob.alias else AliasChoices(name)
    text = f"{knob.meaning}: {knob.allowed}"
    return Field(default=default, description=text, json_schema_extra=bounds, validation_alias=names)


class ServeAction(Action):
    """The six knobs for the next window. Fields left out take vLLM's defaults; nothing is clamped."""

    model_config = ConfigDict(
        populate_by_name=True,
        json_schema_extra={
            "examples": [{"batch_cap": 96, "kv_budget_fraction": 0.8, "speculation_depth": 2, "priority_routing": True}]
        },
    )

    batch_cap: int = _knob("batch_cap", DEFAULTS.batch_cap)
    kv_budget_fraction: float = _knob("kv_budget_fraction", DEFAULTS.kv_budget_fraction)
    speculation_depth: int = _knob("speculation_depth", DEFAULTS.speculation_depth)
    quantization_tier: Tier = _knob("quantization_tier", TIER_NAMES[DEFAULTS.quantization_tier])
    prefill_decode_split: bool = _knob("prefill_decode_split", DEFAULTS.prefill_decode_split)
    priority_routing: bool = _knob("priority_routing", DEFAULTS.priority_routing)

    @field_validator(*KNOB_BY_NAME, mode="before")
    @classmethod
    def _in_range(cls, value: Any, info: ValidationInfo) -> Any:
        knob = KNOB_BY_NAME[str(info.field_name)]
        try:
            number = knob.number(value)
        except InvalidActionError as error:
            # OpenEnv sends the error's context as JSON, which a ValueError's context is not.
            raise PydanticCustomError("knob_out_of_range", "{reason}", {"reason": str(error)}) from error
        match knob.kind:
            case "tier":
                return TIER_NAMES[int(number)]
            case "bool":
                return bool(number)
            case "int":
                return int(number)
        return number

    def numbers(self) -> list[float]:
        """Values in the order of the action."""
        return [KNOB_BY_NAME[name].number(getattr(self, name)) for name in KNOB_BY_NAME]


class ServeObservation(Observation):
    """The window just served, as an operator's dashboard would show it; docs/metrics.md defines every figure."""

    queue_depth: Count = Field(default=0, description="requests waiting at the end of the window, all replicas")
    active_requests: Count = Field(default=0, description="requests running at the end of the window, all replicas")
    kv_cache_occupancy: Share = Field(default=0.0, description="used share of the KV blocks in service")
    mean_prompt_length: Amount = Field(
        default=0.0, description="prompt tokens per request, moving average over 10 windows"
    )
    p50_ttft_ms: Amount = Field(default=0.0, description="median time to first token over the last 10 windows")
    p99_ttft_ms: Amount = Field(default=0.0, description="99th percentile of the same")
    p50_itl_ms: Amount = Field(default=0.0, description="median gap between output tokens in the window")
    throughput_tps: Amount = Field(default=0.0, description="output tokens per second in the window")
    slo_compliance_rate: Share = Field(
        default=1.0, description="share of requests that met their SLO over the last 10 windows"
    )
    slo_violation_rate: Share = Field(default=0.0, description="1 - slo_compliance_rate")
    gpu_memory_used_gb: Amount = Field(default=0.0, description="peak memory of the fullest GPU in the window, GB")
    estimated_cost_per_1k: Amount = Field(default=0.0, description="USD per 1,000 output tokens of the window")
    request_arrival_rate: Amount = Field(default=0.0, description="requests per second, moving average over 10 windows")
    spec_acceptance_rate: Share = Field(default=0.0, description="accepted share of the drafted tokens in the window")
    eviction_events: Count = Field(default=0, description="requests that lost their KV blocks in the window")
    priority_distribution: Annotated[list[Share], Field(min_length=3, max_length=3)] = Field(
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
    """Where an episode stands."""

    episode_id: str | None = Field(default=None, description="id of the episode; over HTTP the session id")
    step_count: Count = Field(default=0, description="windows served since reset")
    task_id: str | None = None
    seed: int | None = None
    episode_length: Count = 0
    cumulative_reward: FiniteFloat = 0.0
    done: bool = False
    phase: str | None = Field(default=None, description="warmup, steady, burst or cooldown")
    totals: dict[str, FiniteFloat] = Field(default_factory=dict, description="sums since reset")
    score: Share | None = Field(default=None, description="grade of the finished episode")


class WireModel(BaseModel):
    """Base of our own wire types: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class MetricsSnapshot(WireModel):
    """Figures of one window beside the reward they earned: a row of an episode's history."""

    step_index: Count
    observation: ServeObservation
    action: ServeAction
    reward: FiniteFloat
    cumulative_reward: FiniteFloat


class EpisodeLog(WireModel):
    """An episode as causes; grading replays them, so the rewards are a claim that is checked."""

    task_id: str = Field(max_length=200)
    task_version: int = Field(ge=1)
    environment_version: str = Field(max_length=50)
    seed: int = Field(ge=0, le=2**32 - 1)
    actions: list[ServeAction] = Field(description="one per step, in order")
    rewards: list[FiniteFloat] = Field(default_factory=list, description="as they were paid; empty to claim nothing")
    mode: Mode = Field(default="sim", description="what served the requests; a real log cannot be replayed")


class GradeReport(WireModel):
    """A score with its reasons."""

    task_id: str
    seed: int
    steps: Count
    score: Share
    breakdown: dict[str, FiniteFloat]
    feedback: str
    mode: Mode = Field(default="sim", description="what served the requests; real scores belong to no simulated table")
