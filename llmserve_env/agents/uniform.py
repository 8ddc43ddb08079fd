"""`random`: `action_space.sample()` of the default Gymnasium id, at every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import EpisodeStateError
from llmserve_env.tasks.task import Task

MAX_SPACE_SEED = 2**31


class RandomAgent:
    """A level of every knob, all equally likely; each episode samples from a space seeded by its own generator."""

    name = "random"

    def __init__(self) -> None:
        self._spaces: list[Any] = []
        self._actions: ActionCodec | None = None

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._actions = ActionCodec(task)
        self._spaces = [self._actions.space for _ in rngs]
        for space, rng in zip(self._spaces, rngs, strict=True):
            space.seed(int(rng.integers(MAX_SPACE_SEED)))

    def act(self, view: AgentView) -> Array:
        if self._actions is None:
            raise EpisodeStateError("reset the random agent before it acts")
        return self._actions.decode(np.array([space.sample() for space in self._spaces]))
