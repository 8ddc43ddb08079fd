"""The Gymnasium environment."""

from __future__ import annotations

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
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task


class LLMServeGymEnv(gym.Env[Array, Array]):
    """Set the serving configuration of a GPU fleet for the next window while live traffic changes.

    ## Action space
    `MultiDiscrete` over levels of the task's knobs (`action_encoding="discrete"`, the default), or a `Box` of one
    number in [-1, 1] per knob (`"box"`). A knob that the task masks keeps its default, and a costly one must dwell at
    a value before it changes again; `info["held_knobs"]` names the changes that did not apply.

    ## Observation space
    A float32 vector of window metrics, sliding figures and current knobs, named by `env.features.features_of`.

    ## Rewards
    Weighted terms of the window in [-1, 1]; every term is in `info["reward_terms"]`.

    ## Episode end
    Never terminated; truncated after the task's number of steps.

    ## Version history
    v1: first release.

    Args:
        task: a task, or its id or number.
        action_encoding: `discrete` or `box`.
        render_mode: `ansi`, `rgb_array` or None.
        backend: what serves the requests of this task; the simulator if None.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's contract

    def __init__(
        self,
        task: Task | str | int,
        action_encoding: ActionEncoding = "discrete",
        render_mode: str | None = None,
        backend: ServingBackend | None = None,
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode must be one of {self.metadata['render_modes']} or None; got {render_mode!r}")
        self.task = task if isinstance(task, Task) else load_task(task)
        self.render_mode = render_mode
        self.actions = ActionCodec(self.task, action_encoding)
        self.action_space = self.actions.space
        self.observation_space = observation_space(self.task)
        self.episode = Episode(self.task, backend=backend)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Start an episode; without a seed, the environment's generator draws one."""
        super().reset(seed=seed)
        episode_seed = seed if seed is not None else int(self.np_random.integers(0, MAX_SEED + 1))
        self.episode.reset(episode_seed)
        return self._observe(), {"seed": episode_seed, "task_id": self.task.id, "masked_knobs": self.task.masked_knobs}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Serve one window under these knobs."""
        self.episode.step(self.actions.decode(np.asarray(action)[None])[0])
        return self._observe(), self.episode.reward, False, self.episode.is_done, self._info()

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
