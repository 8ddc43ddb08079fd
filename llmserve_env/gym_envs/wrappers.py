"""Wrappers for training: another task in every episode, or harder ones once the easier are mastered.

    env = RandomisedTasks(gym.make("LLMServe/bursty_workload-v2"), lambda rng: varied(load_task(2), rng))
    env = Curriculum(gym.make("LLMServe/static_workload-v2"), ["static_workload", "bursty_workload"], promote_at=[55.0])

Both use `reset(options={"task": …})`, so they work on any environment of this package that plays in the simulator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.gym_envs.options import TASK, as_task
from llmserve_env.tasks.task import Task

DRAWING_STREAM = 7
"""Keeps the drawing of tasks apart from the environment's own random numbers."""


class RandomisedTasks(gym.Wrapper[Array, Array, Array, Array]):
    """Draws the task of every episode; `tasks.randomisation` has `varied` and `drawn` for this.

    Args:
        env: an environment of this package.
        draw: a function from a generator to a task with the same spaces and number of steps.
    """

    def __init__(self, env: gym.Env[Array, Array], draw: Callable[[np.random.Generator], Task]) -> None:
        super().__init__(env)
        self._draw = draw
        self._rng = np.random.default_rng()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode of a newly drawn task; a seed also decides the tasks that follow."""
        _require_free(options)
        if seed is not None:
            self._rng = np.random.default_rng(np.random.SeedSequence((seed, DRAWING_STREAM)))
        return super().reset(seed=seed, options={**(options or {}), TASK: self._draw(self._rng)})


class Curriculum(gym.Wrapper[Array, Array, Array, Array]):
    """Plays tasks in order; the next one begins when the mean return of the last episodes reaches its bar.

    Args:
        env: an environment of this package.
        tasks: from the easiest to the hardest, with the same spaces and number of steps.
        promote_at: mean return that ends each task but the last.
        num_episodes: episodes of a task over which the mean is taken.
    """

    def __init__(
        self,
        env: gym.Env[Array, Array],
        tasks: Sequence[Task | str | int],
        promote_at: Sequence[float],
        num_episodes: int = 5,
    ) -> None:
        super().__init__(env)
        if len(promote_at) != len(tasks) - 1:
            raise ConfigError(f"{len(tasks)} tasks need {len(tasks) - 1} returns to promote at; got {len(promote_at)}")
        self._tasks, self._promote_at = [as_task(task) for task in tasks], list(promote_at)
        self._returns: deque[float] = deque(maxlen=num_episodes)
        self._return = 0.0
        self.stage = 0
        """Index of the task being played."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode of the present task."""
        _require_free(options)
        self._return = 0.0
        observation, info = super().reset(seed=seed, options={**(options or {}), TASK: self._tasks[self.stage]})
        return observation, {**info, "stage": self.stage}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Take a step; the end of an episode may end the present task."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._return += float(reward)
        if terminated or truncated:
            self._returns.append(self._return)
            self._promote()
        return observation, float(reward), terminated, truncated, {**info, "stage": self.stage}

    def _promote(self) -> None:
        is_last, is_full = self.stage == len(self._tasks) - 1, len(self._returns) == self._returns.maxlen
        if not is_last and is_full and np.mean(self._returns) >= self._promote_at[self.stage]:
            self.stage += 1
            self._returns.clear()


def _require_free(options: dict[str, Any] | None) -> None:
    if options and TASK in options:
        raise ConfigError("this wrapper chooses the task; leave it out of the reset options")
