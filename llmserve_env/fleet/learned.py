"""The learned policy as an agent: a small network over the informed rule, in numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError, VersionMismatchError, WeightsNotFoundError
from llmserve_env.fleet.corrected import CorrectedRule, action_names
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.task import FleetTask

WEIGHTS = Path(__file__).parents[1] / "weights" / "fleet"


class CorrectionNetwork:
    """A multilayer perceptron with tanh units, from features to corrections."""

    def __init__(self, layers: list[tuple[Array, Array]], card: dict[str, Any]) -> None:
        self.layers, self.card = layers, card

    def __call__(self, features: Array) -> Array:
        hidden = features.astype(np.float64)
        for weight, bias in self.layers[:-1]:
            hidden = np.tanh(hidden @ weight.T + bias)
        weight, bias = self.layers[-1]
        return np.asarray(hidden @ weight.T + bias)


def load_corrections(task: FleetTask, folder: Path = WEIGHTS) -> CorrectionNetwork:
    """The policy that ships for this version of a task."""
    tensors_path, card_path = folder / f"{task.versioned_id}.safetensors", folder / f"{task.versioned_id}.json"
    for path in (tensors_path, card_path):
        if not path.is_file():
            raise WeightsNotFoundError(f"{path} does not exist; train it with: llmserve fleet train {task.id}")
    try:
        card = json.loads(card_path.read_text(encoding="utf-8"))
        tensors = load_file(tensors_path)
        layers = [
            (tensors[f"layers.{i}.weight"].astype(np.float64), tensors[f"layers.{i}.bias"].astype(np.float64))
            for i in range(len(tensors) // 2)
        ]
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{tensors_path}: is not a policy for a fleet ({error})") from error
    if card.get("task") != task.versioned_id or card.get("actions") != list(action_names(task)):
        raise VersionMismatchError(
            f"the policy in {card_path} is for {card.get('task')} and corrects {card.get('actions')}; "
            f"{task.versioned_id} needs one that corrects {list(action_names(task))}: train it again"
        )
    return CorrectionNetwork(layers, card)


class LearnedAgent:
    """The policy on one episode after another."""

    def __init__(self, given: CorrectionNetwork | None = None) -> None:
        """The policy `given`, or the one that ships for the task that is played."""
        self._given = given
        self._rule: CorrectedRule | None = None
        self._network: CorrectionNetwork | None = None

    def reset(self, task: FleetTask) -> None:
        """Begin an episode of a task."""
        self._network = load_corrections(task) if self._given is None else self._given
        self._rule = CorrectedRule(task, self._network.card["rule"], 1)
        takes = self._network.layers[0][0].shape[1]
        if takes != self._rule.num_features:
            raise VersionMismatchError(
                f"the policy takes {takes} features and {task.id} shows {self._rule.num_features}: train it again"
            )

    def act(self, observation: Observation) -> FleetDecision:
        """The decision for the next window."""
        if self._rule is None or self._network is None:
            raise RuntimeError("call reset(task) before act(observation)")
        return self._rule.decide(self._network(self._rule.look(observation.vector[None, :]))).one()
