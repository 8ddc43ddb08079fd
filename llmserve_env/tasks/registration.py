"""Gymnasium ids of the known tasks."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym

from llmserve_env.tasks.files import base_id, read_mapping, task_files

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

    `LLMServe/<task>-flat-v<version>` has one `Discrete` action instead, and `LLMServe/remote-v1` plays on a server. A
    version newer than the one that the plain id means has no id yet: Gymnasium would call the other out of date.
    """
    files = task_files()
    read = {path: read_mapping(path) for path in files.values()}
    newest = {name: read[path].get("version", 1) for name, path in files.items()}
    for path, data in sorted(read.items()):
        name, version = base_id(path.stem), data.get("version", 1)
        if version <= newest.get(name, version) and f"LLMServe/{name}-v{version}" not in gym.registry:
            _register(name, version, data.get("steps", DEFAULT_STEPS), path.stem)
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
