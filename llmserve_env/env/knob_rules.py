"""A task's rules for its knobs as numbers for the kernels, and the knobs an episode starts with."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import NAMES
from llmserve_env.env.features import feature_scale, features_of
from llmserve_env.tasks.task import Task


def fill_knob_rules(scoring: Array, task: Task) -> None:
    """Write which knobs move, how long they dwell and how they are encoded into the only record of `scoring`."""
    offered = {knob.name for knob in task.action_knobs}
    row = scoring[0]
    row["default"] = task.default_knobs
    row["is_offered"] = [name in offered for name in NAMES]
    row["is_active"] = [name in task.knobs.active for name in NAMES]
    row["dwell_steps"] = [task.knobs.dwell_steps.get(name, 0) for name in NAMES]
    row["num_choices"] = [len(knob.levels) if knob.kind == "tier" else 0 for knob in task.knob_table]
    for k, knob in enumerate(task.knob_table):
        if knob.kind == "tier":
            row["choices"][k, : len(knob.levels)] = knob.levels
    row["is_log"] = [knob.scale == "log" for knob in task.knob_table]
    row["feature_scale"] = [feature_scale(knob) for knob in task.knob_table]
    row["num_features"] = len(features_of(task.action_knobs))
    row["shows_dwell"] = [knob.is_costly for knob in task.knob_table]


def start_control(control: Array, scoring: Array, index: int) -> None:
    """Set the control record of episode `index` to that of an episode before its first step."""
    control[index] = np.zeros((), control.dtype)
    control["current"][index], control["changed_at_step"][index] = scoring["default"][0], -1
