"""What `reset(options=…)` and keyword arguments may ask for. Each is obeyed or refused, never ignored."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from llmserve_env.env.spaces import ActionCodec, ActionEncoding, observation_space
from llmserve_env.errors import ConfigError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task

TASK, WEIGHTS, RESET_MASK = "task", "weights", "reset_mask"


def as_task(task: Any) -> Task:
    """The task itself, or the task of this id, number or file."""
    if not isinstance(task, Task | str | int) or isinstance(task, bool):
        raise ConfigError(f"a task is given by its id, number or file, or as a Task; got {task!r:.80}")
    return task if isinstance(task, Task) else load_task(task)


def weights_of(task: Task, changes: Any) -> RewardWeights | None:
    """The task's reward weights with some, by name, replaced; None for the task's own."""
    if changes is None or isinstance(changes, RewardWeights):
        return changes
    known = task.reward.weights.model_dump()
    if not isinstance(changes, Mapping):
        raise ConfigError(f"reward weights are given as {{'throughput': 0.5}}, by name; got {changes!r:.80}")
    for name, value in changes.items():
        if name not in known:
            raise ConfigError(f"there is no reward weight {name!r}; known: {', '.join(known)}")
        if not _is_number(value) or not 0.0 <= value < float("inf"):
            raise ConfigError(f"the reward weight {name} must be a number of at least 0; got {value!r}")
    return RewardWeights(**{**known, **{name: float(value) for name, value in changes.items()}})


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def checked_options(options: Mapping[str, Any] | None, allowed: tuple[str, ...]) -> dict[str, Any]:
    """The options of a reset; an unknown one is an error."""
    given = dict(options or {})
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise ConfigError(f"unknown reset options: {', '.join(unknown)}; allowed: {', '.join(allowed)}")
    return given


def require_same_spaces(
    task: Task,
    encoding: ActionEncoding,
    action: spaces.Space[Any],
    observation: spaces.Space[Any],
    spec: EnvSpec | None,
) -> None:
    """Refuse a task that needs other spaces, or more steps than the registered id ends after."""
    if ActionCodec(task, encoding).space != action or observation_space(task) != observation:
        raise ConfigError(
            f"{task.id} has other action or observation spaces than this environment; make one with gym.make for it"
        )
    registered = None if spec is None else gym.registry.get(spec.id)
    limit = None if registered is None else registered.max_episode_steps
    if registered is not None and limit is not None and task.steps > limit:
        raise ConfigError(
            f"{task.id} has {task.steps} steps, but {registered.id} ends after {limit}; use the id of the task, or "
            "LLMServeGymEnv itself"
        )
