"""LLMServeEnv: the reinforcement-learning environment for LLM inference serving.

`import llmserve_env` registers the Gymnasium ids and loads nothing heavy; the names below load when used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llmserve_env.client import LLMServeEnv
    from llmserve_env.env.episode import Episode
    from llmserve_env.env.gym_env import LLMServeGymEnv
    from llmserve_env.env.vector_env import LLMServeVectorEnv
    from llmserve_env.models import ServeAction, ServeObservation, ServeState
    from llmserve_env.tasks.catalog import load_task
    from llmserve_env.tasks.files import task_ids
    from llmserve_env.tasks.registration import register_file

__all__ = [
    "Episode",
    "LLMServeEnv",
    "LLMServeGymEnv",
    "LLMServeVectorEnv",
    "ServeAction",
    "ServeObservation",
    "ServeState",
    "load_task",
    "register",
    "register_file",
    "task_ids",
]

_HOMES = {
    "Episode": "llmserve_env.env.episode",
    "LLMServeEnv": "llmserve_env.client",
    "LLMServeGymEnv": "llmserve_env.env.gym_env",
    "LLMServeVectorEnv": "llmserve_env.env.vector_env",
    "ServeAction": "llmserve_env.models",
    "ServeObservation": "llmserve_env.models",
    "ServeState": "llmserve_env.models",
    "load_task": "llmserve_env.tasks.catalog",
    "register_file": "llmserve_env.tasks.registration",
    "task_ids": "llmserve_env.tasks.files",
}


def register() -> None:
    """Register the tasks with Gymnasium."""
    import_module("llmserve_env.tasks.registration").register_all()


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


register()
