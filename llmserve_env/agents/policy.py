"""Trained policy networks without torch: a safetensors file, a JSON card, and a forward pass in numpy."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from llmserve_env.agents.policy_format import PolicyFormat, format_of
from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError, VersionMismatchError, WeightsNotFoundError
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

WEIGHTS_VARIABLE = "LLMSERVE_WEIGHTS"
SHIPPED_WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
MAX_WEIGHTS_BYTES = 100_000_000
GENERALIST = "generalist"
"""Folder of the policy trained on all benchmark tasks."""
SWITCH_LOG_ODDS = float(np.log(3.0))
"""A knob changes where another level is three times as probable as the one in force."""


def weights_folder() -> Path:
    """Where trained policies are written: LLMSERVE_WEIGHTS, else the package's folder in a checkout, else ./weights."""
    if named := os.environ.get(WEIGHTS_VARIABLE):
        return Path(named)
    return SHIPPED_WEIGHTS if _is_checkout() else Path("weights")


def policy_folder(name: str) -> Path:
    """The folder from which a policy is read: the one training writes to or, where it has none, the package's.

    Where LLMSERVE_WEIGHTS is set, no other folder is used.
    """
    trained, shipped = weights_folder() / name, SHIPPED_WEIGHTS / name
    use_shipped = not os.environ.get(WEIGHTS_VARIABLE) and not trained.is_dir() and shipped.is_dir()
    return shipped if use_shipped else trained


def policy_folder_for(task: Task) -> Path:
    """The folder of the policy of a task for its version: `<id>-v<version>` if there is one."""
    versioned = policy_folder(f"{task.id}-v{task.version}")
    return versioned if versioned.is_dir() else policy_folder(task.id)


def generalist_folder_for(task: Task) -> Path:
    """The folder of the newest generalist, unless an older one was trained on this version of the task.

    The number in the folder's name is a version of the tasks it was trained on, which says nothing about others.
    """
    former = policy_folder(f"{GENERALIST}-v{task.version}")
    card = former / "ppo.json"
    has_learned = card.is_file() and _read_card(card)["tasks"].get(task.id) == task.version
    return former if has_learned else policy_folder(GENERALIST)


def keep_former(folder: Path, task: Task) -> None:
    """Rename a folder that holds a policy of an older version of this task, before a new one is written there."""
    card = folder / "ppo.json"
    version = json.loads(card.read_text(encoding="utf-8"))["tasks"].get(task.id) if card.is_file() else None
    if version is not None and version < task.version:
        folder.rename(folder.with_name(f"{folder.name}-v{version}"))


def _is_checkout() -> bool:
    """Whether the package lies in its repository rather than among installed packages."""
    return (SHIPPED_WEIGHTS.parents[1] / "pyproject.toml").is_file()


@dataclass(frozen=True, slots=True)
class PolicyNetwork:
    """A multilayer perceptron with tanh units and one softmax per knob; `card["levels"]` has the levels."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    card: dict[str, Any]

    def levels(self, features: Array, current: Array) -> Array:
        """Level of every knob, shape (episodes, knobs): the current one unless another is clearly more probable."""
        return np.array([self._choose(row, knobs) for row, knobs in zip(features, current, strict=True)])

    def _choose(self, row: Array, current: Array) -> Array:
        # One row at a time in double precision: a batched product rounds by batch size, and could flip a near tie.
        hidden = row.astype(np.float64)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = np.tanh(weight @ hidden + bias)
        logits = self.weights[-1] @ hidden + self.biases[-1]
        levels_of_knobs = self.card["levels"]
        ends = np.cumsum([len(levels) for levels in levels_of_knobs])[:-1]
        return np.array([_sticky(*each) for each in zip(np.split(logits, ends), levels_of_knobs, current, strict=True)])


def _sticky(logits: Array, levels: list[float], current: float) -> int:
    """The most probable level, with a bonus for the one in force: a knob that hardly matters does not flutter."""
    best = logits + SWITCH_LOG_ODDS * (np.asarray(levels) == current)
    return int(np.argmax(best))


def _read_card(path: Path) -> dict[str, Any]:
    """The card of a policy, with the fields that playing it needs."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
        # Read as playing reads it, so that a missing field is reported here.
        {str(task): int(version) for task, version in card["tasks"].items()}
        [str(name) for name in card["features"]]
        is_sound = isinstance(card["environment_version"], str) and all(
            levels and all(isinstance(level, int | float) and math.isfinite(level) for level in levels)
            for levels in card["levels"]
        )
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: is not the card of a policy ({type(error).__name__}: {error})") from error
    if not is_sound:
        raise ConfigError(f"{path}: levels must be lists of numbers, and environment_version a text")
    found: dict[str, Any] = card
    return found


def _read_layers(path: Path) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """Weights and biases, layer by layer; each must fit the one before, and every number must be finite."""
    if path.stat().st_size > MAX_WEIGHTS_BYTES:
        raise ConfigError(f"{path}: has {path.stat().st_size:,} bytes; a policy has at most {MAX_WEIGHTS_BYTES:,}")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError, MemoryError) as error:
        raise ConfigError(f"{path}: cannot be read as safetensors ({error})") from error
    names = [f"layers.{i}.{kind}" for i in range(len(tensors) // 2) for kind in ("weight", "bias")]
    if not names or set(names) != set(tensors):
        raise ConfigError(f"{path}: must hold layers.0.weight, layers.0.bias and so on; got {sorted(tensors)[:6]}")
    layers = [tensors[name] for name in names]
    if any(layer.dtype.kind != "f" or not np.isfinite(layer).all() for layer in layers):
        raise ConfigError(f"{path}: every number must be a finite float")
    weights = tuple(layer.astype(np.float64) for layer in layers[::2])
    biases = tuple(layer.astype(np.float64) for layer in layers[1::2])
    widths = [None, *(weight.shape[0] if weight.ndim == 2 else 0 for weight in weights)]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        is_next = weight.ndim == 2 and widths[i] in (None, weight.shape[1])
        if not is_next or bias.shape != weight.shape[:1] or 0 in weight.shape:
            raise ConfigError(f"{path}: layer {i} of shape {weight.shape} and {bias.shape} does not fit the one before")
    return weights, biases


def load_policy(folder: Path) -> PolicyNetwork:
    """The policy in a folder of weights."""
    tensors_path, card_path = folder / "ppo.safetensors", folder / "ppo.json"
    for path in (tensors_path, card_path):
        if not path.is_file():
            raise WeightsNotFoundError(
                f"{path} does not exist; train it with: python train.py --task {folder.name} "
                f"(or name another folder of weights in {WEIGHTS_VARIABLE})"
            )
    card = _read_card(card_path)
    weights, biases = _read_layers(tensors_path)
    shape = (weights[0].shape[1], weights[-1].shape[0])
    described = (len(card["features"]), sum(map(len, card["levels"])))
    if shape != described:
        raise ConfigError(
            f"{tensors_path} takes {shape[0]} features to {shape[1]} levels, but {card_path.name} describes "
            f"{described[0]} and {described[1]}: the two files are not of one policy"
        )
    return PolicyNetwork(weights, biases, card)


def check_policy(policy: PolicyNetwork, task: Task, folder: Path) -> PolicyFormat:
    """The policy's format; one that was trained on other tasks, observations, actions or dynamics is refused."""
    card = policy.card
    trained_on = card["tasks"].get(task.id)
    if trained_on is None:
        raise WeightsNotFoundError(f"the policy in {folder} was trained on {', '.join(card['tasks'])}, not {task.id}")
    if trained_on != task.version:
        raise VersionMismatchError(
            f"the policy in {folder} is for {task.id} version {trained_on}; here is version {task.version}: "
            f"train it again with: python train.py --task {task.id}"
        )
    return check_interface(policy, task, folder)


def check_interface(policy: PolicyNetwork, task: Task, folder: Path) -> PolicyFormat:
    """The policy's format; one that sees other features, sets other knobs or knows other dynamics is refused."""
    card = policy.card
    if card["environment_version"] != ENVIRONMENT_VERSION:
        raise VersionMismatchError(
            f"the policy in {folder} learned on environment {card['environment_version']}; here is "
            f"{ENVIRONMENT_VERSION}: train it again"
        )
    described = format_of(card, task)
    if card["features"] != described.feature_names(task):
        raise VersionMismatchError(
            f"the policy in {folder} was made for other features than those of {task.id}: train it again on this task"
        )
    fits = len(card["levels"]) == len(task.action_knobs) and all(
        knob.low <= min(levels) and max(levels) <= knob.high
        for knob, levels in zip(task.action_knobs, card["levels"], strict=False)
    )
    if not fits:
        raise VersionMismatchError(
            f"the policy in {folder} sets other knobs or values than {task.id} offers: train it again on this task"
        )
    return described
