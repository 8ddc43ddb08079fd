"""The Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.backends.backend import ServingBackend
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.env.episode import MAX_SEED, Episode
from llmserve_env.env.kernels import TERMS_DTYPE
from llmserve_env.env.rendering import render_frame, render_text
from llmserve_env.env.spaces import ActionCodec, ActionEncoding, observation_space
from llmserve_env.errors import ConfigError
from llmserve_env.gym_envs.final_info import final_info
from llmserve_env.gym_envs.options import TASK, WEIGHTS, as_task, checked_options, require_same_spaces, weights_of
from llmserve_env.tasks.sections import RewardWeights
from llmserve_env.tasks.task import Task


class LLMServeGymEnv(gym.Env[Array, Array]):
    """Set the serving configuration of a GPU fleet for the next window while live traffic changes.

    ## Action space
    `MultiDiscrete` over levels of the task's knobs (`action_encoding="discrete"`, the default), one `Discrete` over all
    combinations of the active knobs' levels (`"flat"`), or a `Box` of one number in [-1, 1] per knob (`"box"`). A knob
    that the task masks keeps its default, and a costly one must dwell at a value before it changes again;
    `info["held_knobs"]` names the changes that did not apply, and `action_masks()` the levels that would.

    ## Observation space
    A float32 vector of window metrics, sliding figures and current knobs, named by `env.features.features_of`.

    ## Rewards
    Weighted terms of the window in [-1, 1]; every term is in `info["reward_terms"]`.

    ## Episode end
    Never terminated; truncated after the task's number of steps. The last `info` also has `score`, `grade` and
    `requests`: percentiles pooled over the episode's requests.

    ## Reset options
    `options={"task": …, "weights": {…}}` plays another task with the same spaces, or other reward weights, for this
    episode. What cannot be done is refused.

    ## Version history
    v1: first release.

    Args:
        task: a task, or its id, number or file.
        action_encoding: `discrete`, `flat` or `box`.
        render_mode: `ansi`, `rgb_array` or None.
        backend: what serves the requests of this task; the simulator if None.
        reward_weights: replaces some of the task's reward weights.
        grades: whether the last `info` has the grade and the percentiles, which take one to three milliseconds.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's contract

    def __init__(
        self,
        task: Task | str | int,
        action_encoding: ActionEncoding = "discrete",
        render_mode: str | None = None,
        backend: ServingBackend | None = None,
        reward_weights: Mapping[str, float] | None = None,
        grades: bool = True,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']} or None; got {render_mode!r}")
        self.task = as_task(task)
        self.render_mode = render_mode
        self.actions = ActionCodec(self.task, action_encoding)
        self.action_space = self.actions.space
        self.observation_space = observation_space(self.task)
        self.episode = Episode(self.task, backend=backend, weights=weights_of(self.task, reward_weights))
        self._own = (self.task, reward_weights)
        self._is_fixed = backend is not None
        self._grades = grades
        self._weights = weights_of(self.task, reward_weights)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode; without a seed, the environment's generator draws one."""
        given = checked_options(options, (TASK, WEIGHTS))
        self._prepare(as_task(given.get(TASK, self._own[0])), given.get(WEIGHTS, self._own[1]))
        super().reset(seed=seed)
        episode_seed = seed if seed is not None else int(self.np_random.integers(0, MAX_SEED + 1))
        self.episode.reset(episode_seed)
        return self._observe(), {"seed": episode_seed, "task_id": self.task.id, "masked_knobs": self.task.masked_knobs}

    def _prepare(self, task: Task, changes: Mapping[str, float] | None) -> None:
        """Make an episode of this task with these weights, unless the present one fits."""
        weights: RewardWeights | None = weights_of(task, changes)
        if task is self.task and weights == self._weights:
            if self.spec is not None:
                require_same_spaces(task, self.actions.encoding, self.action_space, self.observation_space, self.spec)
            return
        if self._is_fixed:
            raise ConfigError("this environment's backend serves one task with its own weights; make another one")
        require_same_spaces(task, self.actions.encoding, self.action_space, self.observation_space, self.spec)
        self.task, self._weights = task, weights
        self.actions = ActionCodec(task, self.actions.encoding)
        self.episode = Episode(task, weights=weights)

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Serve one window under these knobs."""
        self.episode.step(self.actions.decode(np.asarray(action)[None])[0])
        info = self._info()
        if self.episode.is_done and self._grades:
            info |= final_info(self.episode.played())
        return self._observe(), self.episode.reward, False, self.episode.is_done, info

    def action_masks(self) -> Array:
        """Which levels would apply in the next step, for algorithms that mask invalid actions; not for `box`."""
        batch = self.episode.batch
        masks: Array = self.actions.masks(batch.knobs, batch.can_change())[0]
        return masks

    def _observe(self) -> Array:
        observation: Array = self.episode.batch.features()[0]
        return observation

    def _info(self) -> dict[str, Any]:
        batch = self.episode.batch
        return {
            "reward_terms": dict(zip(TERMS_DTYPE.names or (), batch.terms[0].item(), strict=True)),
            "knobs": mapping_from_knobs(batch.knobs[0].tolist(), self.task.action_knobs),
            "held_knobs": self.episode.held_knobs,
            "cost_so_far_usd": float(batch.control[0]["cost_so_far_usd"]),
            "phase": self.episode.phase,
        }

    def render(self) -> Any:
        """The last window as text, or the episode so far as a picture."""
        if self.render_mode == "ansi":
            return render_text(self.episode)
        if self.render_mode == "rgb_array":
            return render_frame(self.episode)
        return None

    def close(self) -> None:
        """Release a live engine; a simulation holds nothing."""
        self.episode.close()
