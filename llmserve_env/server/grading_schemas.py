"""The requests of /grader."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, FiniteFloat, Tag
from pydantic_core import PydanticCustomError

from llmserve_env.models import EpisodeLog, Mode, ServeAction, WireModel
from llmserve_env.server.schemas import MAX_ID, RewardOverrides, Seed, SessionId, TaskId
from llmserve_env.server.settings import MAX_LOG_ENTRIES


class StepCause(BaseModel):
    """What `info` of /step says about the cause of a window; its effects are computed again."""

    task_id: str = Field(max_length=MAX_ID)
    task_version: int = Field(ge=1)
    environment_version: str = Field(max_length=50)
    seed: Seed
    timestep: int = Field(ge=1, le=1_000_000)
    action: ServeAction
    mode: Mode = "sim"
    reward_weights: RewardOverrides | None = None


class StepAnswer(BaseModel):
    """An answer of /step, as a client keeps it; fields that grading does not need are ignored."""

    info: StepCause
    reward: FiniteFloat


def _kind_of_log(value: Any) -> str:
    return "answers" if isinstance(value, list) else "log"


def _not_endless(value: Any) -> Any:
    """Refuse a log so long that checking it would block the server for seconds."""
    parts = [value, *(value.values() if isinstance(value, dict) else ())]
    if any(isinstance(one, list | dict) and len(one) > MAX_LOG_ENTRIES for one in parts):
        raise PydanticCustomError("too_long", "a log may have {most} entries at most", {"most": MAX_LOG_ENTRIES})
    return value


Log = Annotated[
    Annotated[EpisodeLog, Tag("log")] | Annotated[list[StepAnswer], Tag("answers")],
    Discriminator(_kind_of_log),
    BeforeValidator(_not_endless),
]


class GraderRequest(WireModel):
    """A session, or a log to be replayed; with neither, the session that this client reset last."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"session_id": "5f0c1d3e"},
                {
                    "episode_log": {
                        "task_id": "static_workload",
                        "task_version": 1,
                        "environment_version": "1",
                        "seed": 42,
                        "actions": [{"batch_cap": 96}],
                    }
                },
                {"task_id": 1, "episode_log": []},
            ]
        }
    )

    session_id: SessionId | None = None
    episode_id: SessionId | None = Field(default=None, description="another name for session_id")
    task_id: TaskId | None = Field(default=None, description="of a list of answers; needed only if the list is empty")
    episode_log: Log | None = Field(
        default=None, description="what GET /log answers, or the list of everything that /step answered"
    )
