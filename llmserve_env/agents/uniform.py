"""`random`: every knob drawn afresh at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import decode_box
from llmserve_env.tasks.task import Task


class RandomAgent:
    """Uniform over the box action space: the batch cap on a log scale, everything else evenly over its range."""

    name = "random"

    def __init__(self) -> None:
        self._rngs: Sequence[np.random.Generator] = ()

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._rngs = rngs

    def act(self, view: AgentView) -> Array:
        return decode_box(np.array([rng.uniform(-1.0, 1.0, view.knobs.shape[1]) for rng in self._rngs]))
