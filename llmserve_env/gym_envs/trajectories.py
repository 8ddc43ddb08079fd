"""Records of all episodes of a batch; writing one step of all episodes at a time is cheap."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import NAMES
from llmserve_env.engine.layout import COUNTERS_DTYPE
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.episode import Trajectory
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.kernels import TERMS_DTYPE


class Trajectories:
    """The records of every step of every episode; episodes may be at different steps."""

    def __init__(self, steps: int, num_episodes: int) -> None:
        shape = (steps, num_episodes)
        self._terms, self._metrics = np.zeros(shape, TERMS_DTYPE), np.zeros(shape, METRICS_DTYPE)
        self._window = np.zeros(shape, COUNTERS_DTYPE)
        self._knobs, self._requested = np.zeros((*shape, len(NAMES))), np.zeros((*shape, len(NAMES)))
        self._all = np.arange(num_episodes)

    def record(self, batch: EpisodeBatch, steps: Array, requested: Array) -> None:
        """Add the step that all episodes have just taken; `steps` counts those before it."""
        at = (steps, self._all)
        self._terms[at] = batch.terms
        self._metrics[at] = batch.metrics
        self._window[at] = batch.counters
        self._knobs[at] = batch.knobs
        self._requested[at] = requested

    def of(self, index: int, num_steps: int) -> Trajectory:
        """The record of one episode, a copy."""
        return Trajectory(
            self._terms[:, index].copy(),
            self._metrics[:, index].copy(),
            self._window[:, index].copy(),
            self._knobs[:, index].copy(),
            self._requested[:, index].copy(),
            num_steps,
        )
