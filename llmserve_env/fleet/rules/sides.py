"""What every rule decides besides replicas, by the same few settings: token budget, sleeping replicas and batch jobs.

Batch jobs are admitted while the fleet has room, and at the full rate when their deadline comes near. The token budget
is the one under which the surrogate was recorded, which is the best one on the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.setting import Setting
from llmserve_env.fleet.task import FleetTask


def side_settings(task: FleetTask) -> dict[str, Setting]:
    """The settings that mean something in this task."""
    least, most = task.token_budgets[0], task.token_budgets[-1]
    found = {"token_budget": Setting(most, least, most, "whole")}
    most_asleep = max(pool.max_asleep for pool in task.pools)
    if most_asleep > 0:
        found["asleep"] = Setting(0, 0, most_asleep, "whole")
    if task.batch is not None:
        found["batch_share"] = Setting(0.5, 0.0, 1.0)
        found["batch_kv_use"] = Setting(0.6, 0.05, 1.0)
        found["batch_queue"] = Setting(1.0, 0.0, 10.0)
        found["batch_urgent_s"] = Setting(1800.0, 0.0, 7200.0)
    return found


def batch_share(values: Mapping[str, Array], figures: Mapping[str, Array], ready: Array) -> Array:
    """Share of the highest rate at which batch jobs are admitted, by how full the fleet is."""
    if "batch_share" not in values:
        return np.zeros(len(ready))
    queue = figures["queue"] / np.maximum(ready, 1.0)
    has_room = (figures["kv_use"] < values["batch_kv_use"][:, 0]) & (queue <= values["batch_queue"][:, 0])
    is_urgent = (figures["batch_backlog"] > 0) & (figures["batch_deadline_s"] < values["batch_urgent_s"][:, 0])
    return np.where(is_urgent, 1.0, np.where(has_room, values["batch_share"][:, 0], 0.0))
