"""`ppo` and `ppo_generalist`: policies trained by `train.py`, played greedily."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.policy import GENERALIST, PolicyNetwork, check_policy, load_policy, weights_folder
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import decode_discrete
from llmserve_env.errors import EpisodeStateError
from llmserve_env.tasks.task import Task


class PpoAgent:
    """The policy trained on the task at hand, or the one in a given folder."""

    name = "ppo"

    def __init__(self, weights: Path | None = None) -> None:
        self._given = weights
        self._policy: PolicyNetwork | None = None

    def _folder(self, task: Task) -> Path:
        return self._given or weights_folder() / task.id

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        folder = self._folder(task)
        self._policy = load_policy(folder)
        check_policy(self._policy, task, folder)

    def act(self, view: AgentView) -> Array:
        if self._policy is None or view.features is None:
            raise EpisodeStateError(f"{self.name} acts on the observation vector: reset it, and play in process")
        return decode_discrete(self._policy.levels(view.features, view.knobs))


class GeneralistAgent(PpoAgent):
    """One policy for every benchmark task."""

    name = "ppo_generalist"

    def _folder(self, task: Task) -> Path:
        return self._given or weights_folder() / GENERALIST
