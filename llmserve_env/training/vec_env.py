"""Episodes in one batch per task, behind the vector interface of Stable-Baselines3."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.arrays import Array
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.spaces import FEATURE_LIMIT
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.task import Task


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


class ServingVecEnv(VecEnv):
    """Equal shares of the slots play each task, one slot each drawn one; an episode that ends restarts in its slot.

    Every episode has a fresh training seed.

    First episodes are cut short by different amounts, so that a batch of steps always shows every part of an episode.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        num_envs: int,
        seed: int,
        described: PolicyFormat | None = None,
        drawn: Sequence[Task] = (),
    ) -> None:
        shared = num_envs - len(drawn)
        sizes = [shared // len(tasks) + (i < shared % len(tasks)) for i in range(len(tasks))]
        if min(sizes) <= 0:
            raise ValueError(
                f"{num_envs} environments cannot be shared by {len(tasks)} tasks and {len(drawn)} drawn ones; "
                "use at least as many"
            )
        tasks, sizes = [*tasks, *drawn], [*sizes, *(1 for _ in drawn)]
        self._format = described or PolicyFormat()
        self.render_mode = None
        offered = {tuple(knob.name for knob in task.action_knobs) for task in tasks}
        if len(offered) > 1:
            raise ValueError(f"one policy needs tasks with the same knobs; got {sorted(offered)}")
        self._codec = self._format.codec(tasks[0])
        width = len(self._format.feature_names(tasks[0]))
        super().__init__(num_envs, spaces.Box(-FEATURE_LIMIT, FEATURE_LIMIT, (width,), np.float32), self._codec.space)
        self._rng = np.random.default_rng(np.random.SeedSequence(seed))
        self._batches = [EpisodeBatch.simulated(task, size) for task, size in zip(tasks, sizes, strict=True)]
        ends = np.cumsum(sizes)
        self._slots = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._lengths = np.concatenate([np.full(batch.num_episodes, batch.task.steps) for batch in self._batches])
        self._steps = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs)
        self._actions: Array = np.zeros((num_envs, 0), np.int64)
        self.seconds, self.cpu_seconds = 0.0, 0.0
        """Time spent inside the environment: elapsed seconds, and CPU seconds of this process."""

    def _restart(self, index: int) -> None:
        seeds = SEED_RANGES["training"]
        group = next(g for g, slots in enumerate(self._slots) if index < slots.stop)
        seed = int(self._rng.integers(seeds.start, seeds.stop))
        self._batches[group].reset(index - self._slots[group].start, seed)
        self._steps[index] = 0
        self._returns[index] = 0.0

    def _observe(self) -> Array:
        return np.concatenate([self._format.inputs(batch.task, batch.features()) for batch in self._batches])

    def reset(self) -> Array:
        """Start all episodes."""
        began = _clocks()
        for index in range(self.num_envs):
            self._restart(index)
        full = np.concatenate([np.full(batch.num_episodes, batch.task.steps) for batch in self._batches])
        order = self._rng.permutation(self.num_envs)
        self._lengths = np.maximum(full * (order + 1) // self.num_envs, 1)
        self._spent_since(began)
        return self._observe()

    def _spent_since(self, began: tuple[float, float]) -> None:
        now = _clocks()
        self.seconds += now[0] - began[0]
        self.cpu_seconds += now[1] - began[1]

    def step_async(self, actions: Array) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """Serve one window in every slot."""
        began = _clocks()
        knobs = self._codec.decode(self._actions)
        rewards = np.empty(self.num_envs, np.float32)
        for batch, slots in zip(self._batches, self._slots, strict=True):
            batch.step(knobs[slots])
            rewards[slots] = batch.terms["reward"]
        self._steps += 1
        self._returns += rewards
        observations = self._observe()
        dones = self._steps >= self._lengths
        infos = self._finish(dones, observations) if dones.any() else [{} for _ in range(self.num_envs)]
        self._spent_since(began)
        return observations, rewards, dones, infos

    def _finish(self, dones: Array, observations: Array) -> list[dict[str, Any]]:
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(dones):
            infos[index] = {"terminal_observation": observations[index].copy(), "TimeLimit.truncated": True}
            group = next(g for g, slots in enumerate(self._slots) if index < slots.stop)
            full = self._batches[group].task.steps
            if self._steps[index] == full:
                infos[index]["episode"] = {"r": float(self._returns[index]), "l": full, "t": 0.0}
            self._lengths[index] = full
            self._restart(int(index))
        observations[dones] = self._observe()[dones]
        return infos

    def close(self) -> None:
        """A simulation holds nothing that must be released."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        return [getattr(self, method_name)(*args, **kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]
