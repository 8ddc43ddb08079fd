"""The fleet as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.series import HALVES, Half, RateSeries, load_series
from llmserve_env.fleet.spaces import ActionCodec
from llmserve_env.fleet.task import FleetTask, load_fleet_task

MAX_SEED = 2**31 - 1
MAX_FIGURE = 1e9
"""Larger than any figure of an observation."""
OPTIONS = ("half", "start_s", "series")


class FleetGymEnv(gym.Env[Array, Array]):
    """Decide every thirty seconds how many replicas of each pool serve and sleep, for six hours of real traffic.

    ## Action space
    `MultiDiscrete`, named by `actions.names`: replicas that serve per pool (from the pool's minimum on), replicas that
    sleep per pool that has a warm part, the share of batch admission in tenths, and the level of the token budget.

    ## Observation space
    A float32 vector, named by `task.feature_names`: what a gateway, Prometheus and an orchestrator show.

    ## Rewards
    Dollars: income from requests whose promise was kept, less the bill for replicas, less credits. They add up to the
    episode's. `info["cost"]` is the number of requests whose promise was broken in the window, for methods that take a
    constraint; `info["judged"]` is how many ended.

    ## Episode end
    Never terminated; truncated after the task's number of steps.

    ## Reset options
    `half` (`train`, the default, or `test`), `start_s` (in the series, any time of the half if not given) and `series`
    (a name or a file).

    ## Version history
    v1: first release.

    Args:
        task: a task, its id or its file.
        series: name or file of the rates that episodes are cut from.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's contract

    def __init__(self, task: FleetTask | str, series: str = "servegen_m_large", render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ValueError(f"render_mode must be None; got {render_mode!r}")
        self.render_mode = None
        self.task = task if isinstance(task, FleetTask) else load_fleet_task(task)
        self.series = load_series(series)
        self.actions = ActionCodec(self.task)
        self.action_space = gym.spaces.MultiDiscrete(np.array(self.actions.sizes))
        self.observation_space = gym.spaces.Box(0.0, MAX_FIGURE, (len(self.task.feature_names),), np.float32)
        self.episode: FleetEpisode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begin an episode at a random time of the training half, or where the options say."""
        super().reset(seed=seed)
        series, start_s = self._place(options or {})
        traffic = self.task.traffic(series, start_s, int(self.np_random.integers(MAX_SEED)))
        self.episode = FleetEpisode(self.task, traffic)
        seen = self.episode.reset()
        return self._vector(seen), {"start_s": start_s, "seed": traffic.seed, "series": series.name}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Serve one window."""
        if self.episode is None:
            raise gym.error.ResetNeeded("call reset before the first step")
        seen, dollars, is_over, info = self.episode.step(self.actions.decode(action.tolist()))
        return self._vector(seen), dollars, False, is_over, info

    def _place(self, options: dict[str, Any]) -> tuple[RateSeries, float]:
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise ConfigError(f"unknown reset option {', '.join(unknown)}; allowed: {', '.join(OPTIONS)}")
        series = load_series(options["series"]) if "series" in options else self.series
        if "start_s" in options:
            return series, float(options["start_s"])
        half: Half = options.get("half", "train")
        if half not in HALVES:
            raise ConfigError(f"half must be one of {', '.join(HALVES)}; got {half!r}")
        starts = series.starts(half, self.task.length_s)
        choices = 1 + int((starts[-1] - starts[0]) // self.task.window_s)
        return series, starts[0] + self.task.window_s * float(self.np_random.integers(choices))

    @staticmethod
    def _vector(seen: Observation) -> Array:
        vector: Array = seen.vector.astype(np.float32)
        return vector
