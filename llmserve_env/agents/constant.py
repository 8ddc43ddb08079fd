"""Agents that set the knobs once: to the environment's defaults, to vLLM's, or to what a search found best."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import default_knobs, named
from llmserve_env.errors import VersionMismatchError, WeightsNotFoundError
from llmserve_env.profiles.store import load_profile
from llmserve_env.profiles.vllm_defaults import vllm_defaults
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION


def tuned_file() -> Path:
    """Where `llmserve tune` keeps what it found."""
    return Path(str(files("llmserve_env.agents").joinpath("data/tuned.json")))


def constant_file(task: Task) -> Path:
    """Where the constant of a task is kept: with the package, or beside the file of a task of your own."""
    return tuned_file() if task.own_file is None else task.own_file.with_suffix(".tuned.json")


class ConstantAgent:
    """The same knobs at every step."""

    def __init__(self, knobs: Array, name: str = "constant") -> None:
        self.name = name
        self._knobs = knobs

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        """Nothing to prepare."""

    def act(self, view: AgentView) -> Array:
        return np.tile(self._knobs, (view.num_episodes, 1))


class DefaultKnobsAgent(ConstantAgent):
    """The environment's defaults, which an action takes for every field that it leaves out."""

    def __init__(self) -> None:
        super().__init__(default_knobs(), "default_knobs")

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._knobs = task.default_knobs


class VllmDefaultsAgent(ConstantAgent):
    """What vLLM itself starts with on the task's GPU."""

    def __init__(self) -> None:
        super().__init__(default_knobs(), "vllm_defaults")

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._knobs = vllm_default_knobs(task)


def vllm_default_knobs(task: Task) -> Array:
    """The batch limits of vLLM as knobs, as far as the task's deployment allows them; the other knobs are off."""
    limits = vllm_defaults(load_profile(task.deployment.profile).gpu)
    wanted = {"batch_cap": limits.max_num_seqs, "token_budget": limits.max_num_batched_tokens}
    knobs = task.default_knobs
    for knob in task.knob_table:
        if knob.name in wanted:
            named(knobs)[knob.name] = min(wanted[knob.name], knob.high)
    return knobs


class TunedAgent(ConstantAgent):
    """The best constant of each task."""

    def __init__(self) -> None:
        super().__init__(np.empty(0), "tuned")

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._knobs = tuned_knobs(task)


def tuned_knobs(task: Task) -> Array:
    """The tuned constant of a task; one that was found on another version or content of the task is an error."""
    path = constant_file(task)
    found = json.loads(path.read_text(encoding="utf-8"))["tasks"] if path.is_file() else {}
    command = f"llmserve tune --task {task.typed_name}"
    entry = found.get(task.versioned_id, found.get(task.id))
    if entry is None:
        raise WeightsNotFoundError(f"no tuned constant for {task.id} in {path.name}; find one with: {command}")
    if (entry["task_version"], entry["environment_version"]) != (task.version, ENVIRONMENT_VERSION):
        raise VersionMismatchError(
            f"the tuned constant of {task.id} is for version {entry['task_version']} on environment "
            f"{entry['environment_version']}; here are {task.version} and {ENVIRONMENT_VERSION}: run {command}"
        )
    if entry.get("task_digest", task_digest(task)) != task_digest(task):
        raise VersionMismatchError(f"{task.id} has changed since its constant was tuned; run {command}")
    return task.knobs_from_mapping(entry["knobs"])
