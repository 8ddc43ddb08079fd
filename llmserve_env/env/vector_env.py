"""The native vector environment: all episodes advance in one compiled call."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from llmserve_env.arrays import Array
from llmserve_env.env.episode import MAX_SEED
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.spaces import ActionCodec, ActionEncoding, observation_space
from llmserve_env.errors import EpisodeStateError, InvalidActionError
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task


class LLMServeVectorEnv(VectorEnv[Array, Array, Array]):
    """Episodes of one task that advance together; all are truncated at the same step and reset on the next one."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's contract

    def __init__(
        self,
        task: Task | str | int,
        num_envs: int = 1,
        action_encoding: ActionEncoding = "discrete",
        render_mode: None = None,
    ) -> None:
        if render_mode is not None:
            raise ValueError("the vector environment does not render; make a single one with render_mode")
        self.task = task if isinstance(task, Task) else load_task(task)
        self.num_envs = num_envs
        self.render_mode = None
        self.actions = ActionCodec(self.task, action_encoding)
        self.single_action_space = self.actions.space
        self.single_observation_space = observation_space(self.task)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.batch = EpisodeBatch.simulated(self.task, num_envs)
        self.seeds = np.zeros(num_envs, np.int64)
        self._step: int | None = None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start all episodes; a single seed gives seed, seed + 1, … to them."""
        if isinstance(seed, int):
            self._np_random = np.random.default_rng(seed)
            seeds = [(seed + i) % (MAX_SEED + 1) for i in range(self.num_envs)]
        else:
            drawn = self.np_random.integers(0, MAX_SEED + 1, size=self.num_envs)
            given = seed if seed is not None else [None] * self.num_envs
            seeds = [int(drawn[i]) if s is None else s for i, s in enumerate(given)]
        self._start(seeds)
        return self.batch.features(), {"seed": self.seeds.copy()}

    def _start(self, seeds: list[int]) -> None:
        for index, episode_seed in enumerate(seeds):
            self.batch.reset(index, episode_seed)
        self.seeds[:] = seeds
        self._step = 0

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Serve one window everywhere; right after the end this resets instead, and pays nothing."""
        if self._step is None:
            raise EpisodeStateError("reset the environment before its first step")
        no = np.zeros(self.num_envs, bool)
        if self._step >= self.task.steps:
            self._start([int(s) for s in self.np_random.integers(0, MAX_SEED + 1, size=self.num_envs)])
            return self.batch.features(), np.zeros(self.num_envs), no, no.copy(), {"seed": self.seeds.copy()}
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise InvalidActionError(f"expected actions of shape {self.action_space.shape}; got {actions.shape}")
        self.batch.step(self.actions.decode(actions))
        self._step += 1
        truncated = np.full(self.num_envs, self._step >= self.task.steps)
        return (
            self.batch.features(),
            self.batch.terms["reward"].copy(),
            no,
            truncated,
            {"reward_terms": self.batch.terms.copy()},
        )
