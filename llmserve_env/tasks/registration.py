"""Gymnasium ids of the known tasks."""

from __future__ import annotations

import gymnasium as gym

from llmserve_env.tasks.files import read_mapping, task_files


def register_all() -> None:
    """Register every known task as `LLMServe/<task>-v<version>`; its file is validated when an environment is made."""
    for name, path in task_files().items():
        gym_id = f"LLMServe/{name}-v{read_mapping(path).get('version', 1)}"
        if gym_id in gym.registry:
            continue
        gym.register(
            id=gym_id,
            entry_point="llmserve_env.env.gym_env:LLMServeGymEnv",
            vector_entry_point="llmserve_env.env.vector_env:LLMServeVectorEnv",
            kwargs={"task": name},
        )
