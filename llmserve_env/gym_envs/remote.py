"""A Gymnasium environment on a server: the spaces, observations and rewards of the local one, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.client import LLMServeEnv
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.engine.layout import WINDOW_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.engine.state import records
from llmserve_env.env.episode import COUNTS, MAX_SEED
from llmserve_env.env.episode_batch import scoring_record
from llmserve_env.env.features import encode_features
from llmserve_env.env.kernels import CONTROL_DTYPE
from llmserve_env.env.knob_rules import start_control
from llmserve_env.env.observation import GAUGES, NUM_SHARES
from llmserve_env.env.spaces import ActionCodec, ActionEncoding, observation_space
from llmserve_env.env.wire_names import WIRE_NAMES
from llmserve_env.errors import ConfigError
from llmserve_env.gym_envs.options import TASK, WEIGHTS, as_task, checked_options, require_same_spaces, weights_of
from llmserve_env.models import ServeObservation
from llmserve_env.tasks.task import Task


class RemoteGymEnv(gym.Env[Array, Array]):
    """The environment of `gym.make(<task id>)`, played on a server of the same version.

    gym.make("LLMServe/remote-v1", base_url="http://localhost:7860", task="bursty_workload")

    Args:
        base_url: address of a server.
        task: a task that the package and the server both know, by id or number.
        action_encoding: `discrete`, `flat` or `box`.
        reward_weights: replaces some of the task's reward weights.
        client: options of `LLMServeEnv`, such as headers.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's contract

    def __init__(
        self,
        base_url: str,
        task: str | int = "static_workload",
        action_encoding: ActionEncoding = "discrete",
        reward_weights: Mapping[str, float] | None = None,
        render_mode: None = None,
        **client: Any,
    ) -> None:
        if render_mode is not None:
            raise ValueError("a remote environment does not render; look at the server's page")
        self.task = as_task(task)
        self.render_mode = None
        self.actions = ActionCodec(self.task, action_encoding)
        self.action_space = self.actions.space
        self.observation_space = observation_space(self.task)
        self._own = (self.task, reward_weights)
        self._client = LLMServeEnv(base_url, **client)
        self._reader = WireReader(self.task)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Open a session on the server; without a seed, the environment's generator draws one."""
        given = checked_options(options, (TASK, WEIGHTS))
        task, changes = as_task(given.get(TASK, self._own[0])), given.get(WEIGHTS, self._own[1])
        if task is not self.task:
            require_same_spaces(task, self.actions.encoding, self.action_space, self.observation_space, self.spec)
            self.task, self.actions = task, ActionCodec(task, self.actions.encoding)
        weights = weights_of(task, changes)
        super().reset(seed=seed)
        episode_seed = seed if seed is not None else int(self.np_random.integers(0, MAX_SEED + 1))
        config = {} if weights is None else {"reward_weights": weights.model_dump()}
        observation = self._client.reset(task_id=task.id, seed=episode_seed, config=config)
        self._require_same_version(observation)
        self._reader = WireReader(task)
        info = {"seed": episode_seed, "task_id": task.id, "masked_knobs": task.masked_knobs}
        return self._reader.features(observation), {**info, "session_id": self._client.session_id}

    def _require_same_version(self, observation: ServeObservation) -> None:
        theirs = observation.metadata["versions"]["task"]
        if theirs != self.task.version:
            raise ConfigError(f"the server plays {self.task.id} version {theirs}; here is version {self.task.version}")

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Serve one window on the server."""
        knobs = self.actions.decode(np.asarray(action)[None])[0]
        observation, reward, done, _ = self._client.step(mapping_from_knobs(knobs, self.task.action_knobs))
        metadata = observation.metadata
        info: dict[str, Any] = {
            "reward_terms": {**metadata["reward_terms"], "reward": reward},
            "knobs": metadata["knobs"],
            "held_knobs": tuple(metadata["held_knobs"]),
            "cost_so_far_usd": observation.cost_so_far,
            "phase": metadata["phase"],
        }
        if done:
            grade = self._client.grade()
            said = {"breakdown": dict(grade.breakdown), "feedback": grade.feedback}
            info |= {"score": grade.score, "grade": said, "requests": dict(grade.requests)}
        return self._reader.features(observation), reward, False, done, info

    def action_masks(self) -> Array:
        """Which levels would apply in the next step; not for `box`."""
        masks: Array = self.actions.masks(*self._reader.knobs_in_force())[0]
        return masks

    def close(self) -> None:
        """Close the connection; the session stays on the server."""
        self._client.close()


class WireReader:
    """Turns observations of one remote episode into the vector that the local environment would return."""

    def __init__(self, task: Task) -> None:
        if len(task.workload.classes) > NUM_SHARES:
            raise ConfigError(
                f"{task.id} has {len(task.workload.classes)} classes; the wire tells {NUM_SHARES} apart: play it here"
            )
        self._task = task
        self._scoring = scoring_record(task, task.reward.weights)
        self._control = records((1,), CONTROL_DTYPE)
        start_control(self._control, self._scoring, 0)

    def features(self, observation: ServeObservation) -> Array:
        """The vector; before the first window it holds only knobs and progress, as locally."""
        self._follow(observation)
        window, metrics = np.zeros(1, WINDOW_DTYPE), np.zeros(1, METRICS_DTYPE)
        if observation.step_index:
            self._fill(observation, window, metrics)
        out: Array = np.empty((1, self._scoring["num_features"].item()), np.float32)
        encode_features(self._scoring, self._control, _as_records(window), _as_records(metrics), self._task.steps, out)
        vector: Array = out[0]
        return vector

    def _follow(self, observation: ServeObservation) -> None:
        """Note the knobs in force and when each has changed, from which the time left to dwell follows."""
        control, step = self._control, observation.step_index
        now = self._task.knobs_from_mapping(observation.metadata["knobs"])
        control["changed_at_step"][0] = np.where(now != control["current"][0], step - 1, control["changed_at_step"][0])
        control["current"][0], control["step"][0] = now, step

    def _fill(self, observation: ServeObservation, window: Array, metrics: Array) -> None:
        metadata = observation.metadata
        for metric, field in WIRE_NAMES.items():
            metrics[metric] = getattr(observation, field)
        for name in GAUGES:
            metrics[name] = metadata["gauges"][name]
        metrics["window_rate_rps"] = metadata["window_arrival_rate"]
        metrics["class_share"][0, :NUM_SHARES] = observation.priority_distribution
        for name in COUNTS:
            window[name] = metadata["counts"][name]

    def knobs_in_force(self) -> tuple[Array, Array]:
        """The knobs in force, and which of them would follow a change, one row each."""
        control, dwell_steps = self._control, self._scoring["dwell_steps"][0]
        changed_at = control["changed_at_step"]
        is_dwelling = (changed_at >= 0) & (control["step"][:, None] - changed_at < dwell_steps)
        return control["current"], (self._scoring["is_active"][0] != 0) & ~is_dwelling


def _as_records(array: Array) -> Array:
    """A copy as the kernels need it: aligned records."""
    kept = records(array.shape, array.dtype)
    kept[:] = array
    return kept
