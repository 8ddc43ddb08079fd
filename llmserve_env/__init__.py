"""LLMServeEnv: a reinforcement-learning environment for LLM inference serving.

`import llmserve_env` registers the Gymnasium ids and loads nothing heavy; each name below loads when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_env.agents.agent import Agent, AgentView
    from llmserve_env.agents.registry import make_agent
    from llmserve_env.backends.real.backend import LiveBackend
    from llmserve_env.backends.table.lookup import LookupTable
    from llmserve_env.client import LLMServeEnv, LLMServeWSEnv
    from llmserve_env.env.episode import ActionLog, Episode, PlayedEpisode, replay
    from llmserve_env.evaluation.evaluate import EpisodeResult, evaluate, result_of
    from llmserve_env.evaluation.play import play
    from llmserve_env.evaluation.seeds import SEED_RANGES
    from llmserve_env.graders.grade import Grade, grade, grade_episode
    from llmserve_env.gym_envs.single import LLMServeGymEnv
    from llmserve_env.gym_envs.table_backed import TableBackedEnv
    from llmserve_env.gym_envs.vector import LLMServeVectorEnv
    from llmserve_env.models import ServeAction, ServeObservation, ServeState
    from llmserve_env.tasks.catalog import load_task
    from llmserve_env.tasks.files import task_ids
    from llmserve_env.tasks.registration import register_file
    from llmserve_env.tasks.task import Task

__all__ = [
    "SEED_RANGES",
    "ActionLog",
    "Agent",
    "AgentView",
    "Episode",
    "EpisodeResult",
    "Grade",
    "LLMServeEnv",
    "LLMServeGymEnv",
    "LLMServeVectorEnv",
    "LLMServeWSEnv",
    "LiveBackend",
    "LookupTable",
    "PlayedEpisode",
    "ServeAction",
    "ServeObservation",
    "ServeState",
    "TableBackedEnv",
    "Task",
    "evaluate",
    "grade",
    "grade_episode",
    "load_task",
    "make_agent",
    "play",
    "register",
    "register_file",
    "replay",
    "result_of",
    "task_ids",
]

_HOMES = {
    "SEED_RANGES": "evaluation.seeds",
    "ActionLog": "env.episode",
    "Agent": "agents.agent",
    "AgentView": "agents.agent",
    "Episode": "env.episode",
    "EpisodeResult": "evaluation.evaluate",
    "Grade": "graders.grade",
    "LLMServeEnv": "client",
    "LLMServeGymEnv": "gym_envs.single",
    "LLMServeVectorEnv": "gym_envs.vector",
    "LLMServeWSEnv": "client",
    "LiveBackend": "backends.real.backend",
    "LookupTable": "backends.table.lookup",
    "PlayedEpisode": "env.episode",
    "ServeAction": "models",
    "ServeObservation": "models",
    "ServeState": "models",
    "TableBackedEnv": "gym_envs.table_backed",
    "Task": "tasks.task",
    "evaluate": "evaluation.evaluate",
    "grade": "graders.grade",
    "grade_episode": "graders.grade",
    "load_task": "tasks.catalog",
    "make_agent": "agents.registry",
    "play": "evaluation.play",
    "register_file": "tasks.registration",
    "replay": "env.episode",
    "result_of": "evaluation.evaluate",
    "task_ids": "tasks.files",
}
"""Public name -> module of this package that defines it."""


def register() -> None:
    """Register the tasks with Gymnasium."""
    import_module("llmserve_env.tasks.registration").register_all()
    import_module("llmserve_env.fleet.registration").register_fleet()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


register()
