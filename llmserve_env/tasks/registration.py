"""Gymnasium ids of the known tasks."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from llmserve_env.tasks.files import read_mapping, task_files


def register_file(path: Path | str) -> str:
    """Register the task in a YAML file anywhere; its Gymnasium id."""
    from llmserve_env.tasks.catalog import load_task

    task = load_task(Path(path))
    if task.gym_id not in gym.registry:
        _register(task.gym_id, str(Path(path).resolve()))
    return task.gym_id


def register_all() -> None:
    """Register every known task as `LLMServe/<task>-v<version>`; its file is validated when an environment is made."""
    for name, path in task_files().items():
        gym_id = f"LLMServe/{name}-v{read_mapping(path).get('version', 1)}"
        if gym_id in gym.registry:
            continue
        _register(gym_id, name)


def _register(gym_id: str, task: str) -> None:
    gym.register(
        id=gym_id,
        entry_point="llmserve_env.env.gym_env:LLMServeGymEnv",
        vector_entry_point="llmserve_env.env.vector_env:LLMServeVectorEnv",
        kwargs={"task": task},
    )
