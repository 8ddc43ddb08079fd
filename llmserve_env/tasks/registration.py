"""Gymnasium ids of the shipped tasks."""

from __future__ import annotations

import gymnasium as gym

from llmserve_env.tasks.catalog import load_task, task_ids


def register_all() -> None:
    """Register every known task as `LLMServe/<task>-v<version>`."""
    for name in task_ids():
        task = load_task(name)
        if task.gym_id in gym.registry:
            continue
        gym.register(
            id=task.gym_id,
            entry_point="llmserve_env.env.gym_env:LLMServeGymEnv",
            vector_entry_point="llmserve_env.env.vector_env:LLMServeVectorEnv",
            kwargs={"task": name},
        )
