"""`random`: every knob drawn afresh at every step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import EpisodeStateError
from llmserve_env.tasks.task import Task


class RandomAgent:
    """Uniform over the box action space: the batch cap on a log scale, everything else evenly over its range."""

    name = "random"

    def __init__(self) -> None:
        self._rngs: Sequence[np.random.Generator] = ()
        self._actions: ActionCodec | None = None

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._rngs, self._actions = rngs, ActionCodec(task, "box")

    def act(self, view: AgentView) -> Array:
        if self._actions is None:
            raise EpisodeStateError("reset the random agent before it acts")
        width = len(self._actions.knobs)
        return self._actions.decode(np.array([rng.uniform(-1.0, 1.0, width) for rng in self._rngs]))
