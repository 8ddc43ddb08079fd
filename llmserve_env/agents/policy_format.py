"""What goes into a policy network and what comes out: which features, and which levels of every knob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from llmserve_env.agents.task_features import task_feature_names, task_vector
from llmserve_env.arrays import Array
from llmserve_env.env.features import features_of
from llmserve_env.env.spaces import ActionCodec
from llmserve_env.tasks.task import Task


@dataclass(frozen=True, slots=True)
class PolicyFormat:
    """The usual observation vector and levels, unless told otherwise."""

    levels: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Levels of knobs for which the policy has others than the discrete action space."""
    sees_task: bool = False
    """Whether the observation is followed by what is known about the task."""

    def feature_names(self, task: Task) -> list[str]:
        """What the policy sees, in order."""
        names = [name for name, _ in features_of(task.action_knobs)]
        return names + task_feature_names(task) if self.sees_task else names

    def knob_levels(self, task: Task) -> list[list[float]]:
        """The levels that the policy chooses from, a list per knob."""
        return [list(self.levels.get(knob.name, knob.levels)) for knob in task.action_knobs]

    def codec(self, task: Task) -> ActionCodec:
        """The way from the policy's choice to knobs."""
        return ActionCodec(task, levels=dict(self.levels))

    def inputs(self, task: Task, features: Array) -> Array:
        """The policy's input from the observation vectors of some episodes."""
        if not self.sees_task:
            return features
        known = np.broadcast_to(task_vector(task), (len(features), len(task_feature_names(task))))
        return np.concatenate((features, known), axis=1)


def format_of(card: Mapping[str, Any], task: Task) -> PolicyFormat:
    """The format that a policy's card describes, for a task that offers the same knobs."""
    levels = {knob.name: given for knob, given in zip(task.action_knobs, card["levels"], strict=False)}
    return PolicyFormat(levels, len(card["features"]) > len(features_of(task.action_knobs)))
