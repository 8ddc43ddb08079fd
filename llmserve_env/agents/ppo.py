"""`ppo` and `ppo_generalist`: policies trained by `train.py`, played greedily."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.policy import (
    PolicyNetwork,
    check_interface,
    check_policy,
    generalist_folder_for,
    load_policy,
    policy_folder_for,
)
from llmserve_env.agents.policy_format import PolicyFormat
from llmserve_env.arrays import Array
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.errors import EpisodeStateError, WeightsNotFoundError
from llmserve_env.tasks.task import Task


class PpoAgent:
    """The policy trained on the task at hand, or the one in a given folder."""

    name = "ppo"

    def __init__(self, weights: Path | None = None) -> None:
        self._given = weights
        self._policy: PolicyNetwork | None = None
        self._format = PolicyFormat()
        self._actions: ActionCodec | None = None

    def _folder(self, task: Task) -> Path:
        return self._given or policy_folder_for(task)

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        folder = self._folder(task)
        self._policy = load_policy(folder)
        self._format = self._check(self._policy, task, folder)
        self._actions = self._format.codec(task)

    def _check(self, policy: PolicyNetwork, task: Task, folder: Path) -> PolicyFormat:
        return check_policy(policy, task, folder)

    def act(self, view: AgentView) -> Array:
        if self._policy is None or self._actions is None or view.features is None:
            raise EpisodeStateError(f"{self.name} acts on the observation vector: reset it, and play in process")
        inputs = self._format.inputs(view.task, view.features)
        return self._actions.decode(self._policy.levels(inputs, view.task.action_from_knobs(view.knobs)))


class OwnPolicyAgent(PpoAgent):
    """A policy of your own, in a folder: it plays every task that has its features and levels."""

    def __init__(self, folder: Path, name: str) -> None:
        if not (folder / "ppo.safetensors").is_file():
            raise WeightsNotFoundError(
                f"{folder} holds no ppo.safetensors; name a folder that train.py or export_policy wrote"
            )
        super().__init__(folder)
        self.name = name

    def _check(self, policy: PolicyNetwork, task: Task, folder: Path) -> PolicyFormat:
        return check_interface(policy, task, folder)


class GeneralistAgent(PpoAgent):
    """One policy for every task, including those it was not trained on."""

    name = "ppo_generalist"

    def _folder(self, task: Task) -> Path:
        return self._given or generalist_folder_for(task)

    def _check(self, policy: PolicyNetwork, task: Task, folder: Path) -> PolicyFormat:
        # A task that it was trained on must be of the same version; others are played as they are.
        return (check_policy if task.id in policy.card["tasks"] else check_interface)(policy, task, folder)
