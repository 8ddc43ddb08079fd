"""Gymnasium ids of the known tasks."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from llmserve_env.tasks.files import read_mapping, task_files

REMOTE_ID = "LLMServe/remote-v1"
DEFAULT_STEPS = 200
"""Steps of a task whose file does not say; `Task.steps` has the same default."""


def register_file(path: Path | str) -> str:
    """Register the task in a YAML file anywhere; its Gymnasium id."""
    from llmserve_env.tasks.catalog import load_task

    task = load_task(Path(path))
    if task.gym_id not in gym.registry:
        _register(task.id, task.version, task.steps, str(Path(path).resolve()))
    return task.gym_id


def register_all() -> None:
    """Register every known task as `LLMServe/<task>-v<version>`; its file is validated when an environment is made.

    `LLMServe/<task>-flat-v<version>` has one `Discrete` action instead, and `LLMServe/remote-v1` plays on a server.
    """
    for name, path in task_files().items():
        data = read_mapping(path)
        version, steps = data.get("version", 1), data.get("steps", DEFAULT_STEPS)
        if f"LLMServe/{name}-v{version}" not in gym.registry:
            _register(name, version, steps, name)
    if REMOTE_ID not in gym.registry:
        gym.register(id=REMOTE_ID, entry_point="llmserve_env.gym_envs.remote:RemoteGymEnv")


def _register(name: str, version: int, steps: int, task: str) -> None:
    for suffix, encoding in (("", "discrete"), ("-flat", "flat")):
        gym.register(
            id=f"LLMServe/{name}{suffix}-v{version}",
            entry_point="llmserve_env.gym_envs.single:LLMServeGymEnv",
            vector_entry_point="llmserve_env.gym_envs.vector:LLMServeVectorEnv",
            max_episode_steps=steps,
            kwargs={"task": task, "action_encoding": encoding},
        )
