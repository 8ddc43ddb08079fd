"""The native vector environment: all episodes advance in one compiled call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.env.episode import MAX_SEED, PlayedEpisode
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.kernels import TERMS_DTYPE
from llmserve_env.env.spaces import ActionCodec, ActionEncoding, observation_space
from llmserve_env.errors import ConfigError, EpisodeStateError, InvalidActionError
from llmserve_env.gym_envs.final_info import final_info
from llmserve_env.gym_envs.options import (
    RESET_MASK,
    TASK,
    WEIGHTS,
    as_task,
    checked_options,
    require_same_spaces,
    weights_of,
)
from llmserve_env.gym_envs.trajectories import Trajectories
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task


class LLMServeVectorEnv(VectorEnv[Array, Array, Array]):
    """Episodes of one task that advance together, with the actions, observations and `info` of single environments.

    `info` follows Gymnasium's convention: every key has an array with an entry per environment, and `_key` says which
    entries are set. `autoreset_mode` is any of Gymnasium's three. In `SAME_STEP` mode, `final_obs` and `final_info` are
    those of the episodes that have just ended; in `DISABLED` mode, `reset(options={"reset_mask": …})` restarts some.

    Args:
        task: a task, or its id, number or file.
        num_envs: episodes side by side.
        action_encoding: `discrete`, `flat` or `box`.
        render_mode: None; make a single environment to render.
        autoreset_mode: when an episode that has ended starts again.
        reward_weights: replaces some of the task's reward weights.
        grades: whether the last `info` of an episode has its grade and percentiles (one to three milliseconds each).
        max_episode_steps: must be the task's number of steps; `gym.make_vec` passes that of the registered id.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's contract

    def __init__(
        self,
        task: Task | str | int,
        num_envs: int = 1,
        action_encoding: ActionEncoding = "discrete",
        render_mode: None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        reward_weights: Mapping[str, float] | None = None,
        grades: bool = True,
        max_episode_steps: int | None = None,
    ) -> None:
        if render_mode is not None:
            raise ValueError("the vector environment does not render; make a single one with render_mode")
        self.task = as_task(task)
        if max_episode_steps not in (None, self.task.steps):
            raise ConfigError(f"{self.task.id} has {self.task.steps} steps; got max_episode_steps={max_episode_steps}")
        self.num_envs = num_envs
        self.render_mode = None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.actions = ActionCodec(self.task, action_encoding)
        self.single_action_space = self.actions.space
        self.single_observation_space = observation_space(self.task)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._own, self._grades = (self.task, reward_weights), grades
        self.seeds = np.zeros(num_envs, np.int64)
        self._has_begun = np.zeros(num_envs, bool)
        self._begin(self.task, weights_of(self.task, reward_weights))

    def _begin(self, task: Task, weights: RewardWeights | None) -> None:
        self.task, self._weights = task, weights
        self.batch = EpisodeBatch.simulated(task, self.num_envs, weights)
        self._trajectories = Trajectories(task.steps, self.num_envs)
        self._has_begun[:] = False

    @property
    def _steps(self) -> Array:
        """Steps taken in each episode."""
        steps: Array = self.batch.control["step"]
        return steps

    @property
    def _is_over(self) -> Array:
        over: Array = self._steps >= self.task.steps
        return over

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Start all episodes, or those of a mask; a single seed gives seed, seed + 1, … to them."""
        given = checked_options(options, (TASK, WEIGHTS, RESET_MASK))
        chosen = self._checked_mask(given.get(RESET_MASK))
        self._prepare(as_task(given.get(TASK, self._own[0])), given.get(WEIGHTS, self._own[1]), bool(chosen.all()))
        if isinstance(seed, int):
            self._np_random = np.random.default_rng(seed)
            seeds: list[int | None] = [(seed + i) % (MAX_SEED + 1) for i in range(self.num_envs)]
        else:
            seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"expected {self.num_envs} seeds; got {len(seeds)}")
        self._start(chosen, seeds)
        return self.batch.features(), self._reset_info(chosen)

    def _checked_mask(self, mask: Any) -> Array:
        if mask is None:
            return np.ones(self.num_envs, bool)
        if self.autoreset_mode is not AutoresetMode.DISABLED:
            raise ConfigError("reset_mask needs autoreset_mode=AutoresetMode.DISABLED; otherwise all restart together")
        if (
            not isinstance(mask, np.ndarray)
            or mask.shape != (self.num_envs,)
            or mask.dtype != np.bool_
            or not mask.any()
        ):
            raise ConfigError(f"reset_mask must be an array of {self.num_envs} booleans, at least one of them true")
        return mask

    def _prepare(self, task: Task, changes: Mapping[str, float] | None, is_whole: bool) -> None:
        weights = weights_of(task, changes)
        if task is self.task and weights == self._weights:
            return
        if not is_whole:
            raise ConfigError("a task or weights can be changed for all episodes at once only; leave out reset_mask")
        require_same_spaces(
            task, self.actions.encoding, self.single_action_space, self.single_observation_space, self.spec
        )
        self.actions = ActionCodec(task, self.actions.encoding)
        self._begin(task, weights)

    def _start(self, chosen: Array, seeds: list[int | None]) -> None:
        drawn = self.np_random.integers(0, MAX_SEED + 1, size=self.num_envs)
        for index in np.flatnonzero(chosen):
            given = seeds[index]
            self.seeds[index] = int(drawn[index]) if given is None else given
            self.batch.reset(int(index), int(self.seeds[index]))
        self._has_begun |= chosen

    def _reset_info(self, chosen: Array) -> dict[str, Any]:
        return {
            "seed": np.where(chosen, self.seeds, 0),
            "_seed": chosen.copy(),
            "task_id": _objects([self.task.id if is_chosen else None for is_chosen in chosen]),
            "_task_id": chosen.copy(),
            "masked_knobs": _objects([self.task.masked_knobs if is_chosen else None for is_chosen in chosen]),
            "_masked_knobs": chosen.copy(),
        }

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Serve one window everywhere; the autoreset mode decides what happens to episodes that have ended."""
        if not self._has_begun.all():
            raise EpisodeStateError("reset the environment before its first step")
        actions = np.asarray(actions)
        if actions.shape != self.action_space.shape:
            raise InvalidActionError(f"expected actions of shape {self.action_space.shape}; got {actions.shape}")
        over, none = self._is_over, np.zeros(self.num_envs, bool)
        if over.any():
            if self.autoreset_mode is not AutoresetMode.NEXT_STEP:
                raise EpisodeStateError("an episode has ended; reset it with options={'reset_mask': …} first")
            # Episodes begin together, so all of them have ended.
            self._start(np.ones(self.num_envs, bool), [None] * self.num_envs)
            return self.batch.features(), np.zeros(self.num_envs), none, none.copy(), self._reset_info(~none)
        knobs = self.actions.decode(actions)
        before = self._steps.copy()
        self.batch.step(knobs)
        if self._grades:
            self._trajectories.record(self.batch, before, knobs)
        rewards, truncated, info = self.batch.terms["reward"].copy(), self._is_over, self._info()
        if truncated.any() and self._grades:
            for index in np.flatnonzero(truncated):
                info = self._add_info(info, final_info(self._played(int(index))), int(index))
        observations = self.batch.features()
        if truncated.any() and self.autoreset_mode is AutoresetMode.SAME_STEP:
            observations, info = self._restart_at_once(truncated, observations, info)
        return observations, rewards, none, truncated, info

    def _restart_at_once(self, ended: Array, observations: Array, info: dict[str, Any]) -> tuple[Array, dict[str, Any]]:
        last = _objects([observations[i] if ended[i] else None for i in range(self.num_envs)])
        self._start(ended, [None] * self.num_envs)
        shown = {**self._info(), **self._reset_info(ended)} | {"final_obs": last, "_final_obs": ended.copy()}
        return self.batch.features(), shown | {"final_info": info, "_final_info": ended.copy()}

    def _played(self, index: int) -> PlayedEpisode:
        trajectory = self._trajectories.of(index, self.task.steps)
        return PlayedEpisode(self.task, int(self.seeds[index]), trajectory, self.batch.backend.outcomes(index), "sim")

    def action_masks(self) -> Array:
        """Which levels would apply in the next step, a row per environment; not for `box`."""
        return self.actions.masks(self.batch.knobs, self.batch.can_change())

    def _info(self) -> dict[str, Any]:
        """The `info` that single environments return in every step, as arrays."""
        batch, everywhere = self.batch, np.ones(self.num_envs, bool)
        knobs, terms, held = named(batch.knobs), batch.terms, batch.control["held"]
        offered = self.task.action_knobs
        found: dict[str, Any] = {
            "reward_terms": {name: terms[name].copy() for name in TERMS_DTYPE.names or ()},
            "knobs": {knob.name: knobs[knob.name].copy() for knob in offered},
            "held_knobs": {knob.name: held[:, knob.column] != 0 for knob in offered},
            "cost_so_far_usd": batch.control["cost_so_far_usd"].copy(),
            "phase": batch.phases(),
        }
        return found | {f"_{name}": everywhere for name in found}


def _objects(values: list[Any]) -> Array:
    """An array with one element per object; numpy would take a sequence apart."""
    out = np.empty(len(values), object)
    for index, value in enumerate(values):
        out[index] = value
    return out
