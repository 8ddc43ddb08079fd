"""What every rule decides besides replicas, by the same few settings: sleeping replicas, batch jobs, token budget.

Batch jobs are admitted while the fleet has room, and at the full rate when their deadline comes near.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.setting import Setting
from llmserve_env.fleet.task import FleetTask

TOKEN_BUDGETS = (512, 1024, 2048, 4096, 8192)


def side_settings(task: FleetTask) -> dict[str, Setting]:
    """The settings that mean something in this task."""
    found: dict[str, Setting] = {}
    most_asleep = max(pool.max_asleep for pool in task.pools)
    if most_asleep > 0:
        found["asleep"] = Setting(0, 0, most_asleep, "whole")
    if task.batch is not None:
        found["batch_share"] = Setting(0.5, 0.0, 1.0)
        found["batch_kv_use"] = Setting(0.6, 0.05, 1.0)
        found["batch_queue"] = Setting(1.0, 0.0, 10.0)
        found["batch_urgent_s"] = Setting(1800.0, 0.0, 7200.0)
    if len(budgets(task)) > 1:
        found["token_budget"] = Setting(len(budgets(task)) - 1, 0, len(budgets(task)) - 1, "whole")
    return found


def budgets(task: FleetTask) -> tuple[int, ...]:
    """Token budgets that a rule may choose from, up to the engines' own."""
    most = task.replica.token_budget
    return (*(each for each in TOKEN_BUDGETS if each < most), most)


def batch_share(values: Mapping[str, Array], figures: Mapping[str, Array], ready: Array) -> Array:
    """Share of the highest rate at which batch jobs are admitted, by how full the fleet is."""
    if "batch_share" not in values:
        return np.zeros(len(ready))
    queue = figures["queue"] / np.maximum(ready, 1.0)
    has_room = (figures["kv_use"] < values["batch_kv_use"][:, 0]) & (queue <= values["batch_queue"][:, 0])
    is_urgent = (figures["batch_backlog"] > 0) & (figures["batch_deadline_s"] < values["batch_urgent_s"][:, 0])
    return np.where(is_urgent, 1.0, np.where(has_room, values["batch_share"][:, 0], 0.0))


def token_budget(values: Mapping[str, Array], task: FleetTask, episodes: int) -> Array:
    """Token budget of each episode."""
    known = np.array(budgets(task))
    if "token_budget" not in values:
        return np.full(episodes, known[-1])
    return np.asarray(known[np.round(values["token_budget"][:, 0]).astype(np.int64)])
