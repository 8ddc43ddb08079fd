"""Requests and responses of the HTTP routes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from llmserve_env.client import DEFAULT_SEED
from llmserve_env.env.episode import MAX_SEED
from llmserve_env.models import GradeReport, ServeAction, ServeState, WireModel

MAX_ID = 255


def _printable(text: str) -> str:
    if not text.isprintable():
        raise PydanticCustomError("not_printable", "must be printable text without line breaks or control characters")
    return text


SessionId = Annotated[str, Field(min_length=1, max_length=MAX_ID, examples=["5f0c1d3e"]), AfterValidator(_printable)]
TaskId = (
    Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(_printable)]
    | Annotated[int, Field(ge=1, le=1_000, strict=True)]
)
Seed = Annotated[int, Field(ge=0, le=MAX_SEED, strict=True)]
Weight = Annotated[float, Field(ge=0.0, le=100.0, allow_inf_nan=False)]


class RewardOverrides(WireModel):
    """Weights of the reward terms; those left out keep the task's value."""

    throughput: Weight | None = None
    latency: Weight | None = None
    violations: Weight | None = None
    cost: Weight | None = None
    memory: Weight | None = None


GREEK = {"alpha": "throughput", "beta": "latency", "gamma": "violations", "delta": "cost"}
"""The plan's names of reward weights."""


class ResetConfig(WireModel):
    """What a reset may change about a task: weights of the reward, by name or by the plan's Greek letters."""

    reward_weights: RewardOverrides = Field(default_factory=RewardOverrides)
    alpha: Weight | None = Field(default=None, description="another name for reward_weights.throughput")
    beta: Weight | None = Field(default=None, description="another name for reward_weights.latency")
    gamma: Weight | None = Field(default=None, description="another name for reward_weights.violations")
    delta: Weight | None = Field(default=None, description="another name for reward_weights.cost")

    @model_validator(mode="after")
    def _given_once(self) -> ResetConfig:
        for letter, term in GREEK.items():
            if getattr(self, letter) is not None and getattr(self.reward_weights, term) is not None:
                raise PydanticCustomError(
                    "given_twice",
                    "{letter} and reward_weights.{term} are the same weight; give one of them",
                    {"letter": letter, "term": term},
                )
        return self

    def overrides(self) -> dict[str, float] | None:
        """The weights that were given, or None."""
        letters = {GREEK[letter]: value for letter in GREEK if (value := getattr(self, letter)) is not None}
        return {**self.reward_weights.model_dump(exclude_none=True), **letters} or None


class ResetRequest(WireModel):
    """All fields are optional: `{}` starts the first task with seed 42."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{}, {"task_id": "bursty_workload", "seed": 42}, {"task_id": "static_workload", "seed": 0}]
        }
    )

    task_id: TaskId | None = Field(default=None, description="id of a task (see /tasks), or its number")
    seed: Seed | None = Field(
        default=DEFAULT_SEED, description="42 if left out; null draws one at random, which /state reports"
    )
    episode_id: SessionId | None = Field(
        default=None, description="id for the session; a session of this id is replaced"
    )
    session_id: SessionId | None = Field(default=None, description="another name for episode_id")
    config: ResetConfig = Field(default_factory=ResetConfig)


class StepRequest(WireModel):
    """One step of a session."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"session_id": "5f0c1d3e", "action": {"batch_cap": 96, "kv_budget_fraction": 0.8}},
                {"action": {}},
            ]
        }
    )

    action: ServeAction
    session_id: SessionId | None = Field(
        default=None, description="from /reset; without it, the session that this client reset last"
    )
    episode_id: SessionId | None = Field(default=None, description="another name for session_id")
    step_index: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="number of this step; repeating it returns the same answer instead of taking another step",
    )
    timeout_s: float | None = Field(
        default=None,
        gt=0,
        description="accepted for compatibility with OpenEnv, and ignored: a step takes microseconds",
    )
    request_id: str | None = Field(
        default=None, max_length=MAX_ID, description="accepted for compatibility with OpenEnv, and ignored"
    )


class EpisodeResponse(BaseModel):
    """What /reset and /step answer. As in OpenEnv, `reward` and `done` stand beside the observation."""

    session_id: str
    episode_id: str
    observation: dict[str, Any]
    reward: float | None
    done: bool
    metadata: dict[str, Any]
    info: dict[str, Any]
    episode_length: int


class HealthResponse(BaseModel):
    """Whether the server is up, whether it is ready, and how busy it is."""

    status: str = Field(description="`healthy` as soon as the server answers; `ready` says whether it can step")
    ready: bool = Field(description="whether a step is served at once; until then it waits")
    warming_up: bool = Field(description="whether the server is still loading or compiling the simulator")
    progress: float = Field(
        description="share of the simulator's kernels that are compiled; 1 when the server is ready"
    )
    active_sessions: int = Field(description="HTTP sessions in memory and open WebSockets")
    stored_sessions: int
    uptime_s: float
    uptime_seconds: float = Field(description="the same as uptime_s, by the plan's name")


class ReadyCheck(BaseModel):
    """One thing that the server needs to serve a request."""

    ok: bool
    detail: str


class ReadyResponse(BaseModel):
    """Whether the next request will be served, and what stands in its way."""

    ready: bool
    checks: dict[str, ReadyCheck] = Field(default_factory=dict)


class AgentInfo(BaseModel):
    """An agent as /agents lists it."""

    name: str
    title: str = Field(description="what people call it")
    does: str = Field(description="how it chooses the knobs")
    sees: str = Field(description="what it bases the choice on")
    is_available: bool = Field(description="whether it can play this task here")
    reason: str = Field(description="why it cannot; empty if it can")


class PlayRequest(WireModel):
    """Let an agent play some steps of a session."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"agent": "heuristic", "steps": 10}]})

    agent: str = Field(max_length=50, description="see /agents")
    steps: int = Field(
        default=1, ge=1, le=200, description="fewer are played if the episode or the time for the call ends before"
    )
    session_id: SessionId | None = None


class PlayedStep(BaseModel):
    """One step an agent played."""

    action: dict[str, Any]
    observation: dict[str, Any]
    reward: float
    done: bool


class PlayResponse(BaseModel):
    """The steps an agent played."""

    session_id: str
    agent: str
    steps: list[PlayedStep]


class BaselineReport(BaseModel):
    """Grades of the reference agents on one fixed seed; they are the same every time."""

    seed: int
    environment_version: str
    results: dict[str, dict[str, GradeReport]] = Field(description="task -> agent -> grade")
    scores: dict[str, float] = Field(description="task -> score of the fixed default action by the plan's formula")
    expected_range: dict[str, tuple[float, float]] = Field(
        description="task -> where that score lies on other seeds, as measured when the task's references were frozen"
    )


class BaselineJobReport(BaseModel):
    """A language model's baseline under way: how far it is, and its result in the end."""

    job_id: str
    status: str = Field(description="running, done, failed or cancelled")
    status_url: str = Field(description="GET it for progress, at least once a minute; DELETE it to cancel the job")
    model: str
    seed: int
    environment_version: str
    calls_planned: int = Field(description="calls to the model's API that the job makes at most")
    calls_made: int
    steps_planned: int
    steps_played: int
    results: dict[str, dict[str, GradeReport]] = Field(description="task -> agent -> grade, of the tasks played so far")
    usage: dict[str, Any] = Field(default_factory=dict, description="tokens and cost, once the job has ended")
    error: str | None = None


class TaskInfo(BaseModel):
    """A task as /tasks lists it."""

    id: str
    number: int
    version: int
    gym_id: str
    name: str
    difficulty: str
    description: str
    teaches: str
    episode_length: int
    window_s: float
    active_knobs: list[str]
    active_actions: list[str] = Field(description="the active knobs by the plan's names, where it has one")
    masked_knobs: list[str]
    slos: dict[str, dict[str, float | None]]
    memory_limit_gb: float
    replicas: int
    reward_weights: dict[str, float]
    grader_weights: dict[str, float]


class TasksResponse(BaseModel):
    """All tasks and the action they share."""

    tasks: list[TaskInfo]
    action_schema: dict[str, Any]


class StateResponse(ServeState):
    """A session's state."""

    session_id: str | None = None
