"""From the replicas of a group to its pools: on demand, reserved, and spot in several zones.

With spot pools, a share of the replicas is on demand; the rest is spread evenly over the zones that have not refused or
taken a replica for a while, and what they do not deliver is made up on demand, as SkyServe's SpotHedge does
(arXiv 2411.01438: dynamic placement over zones, overprovisioned spot replicas and on-demand fallback).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.setting import Setting
from llmserve_env.fleet.task import FleetTask

SPOT_SETTINGS = {
    "on_demand_share": Setting(0.2, 0.0, 1.0),
    "overprovision": Setting(0.1, 0.0, 1.0),
    "zone_memory_s": Setting(600.0, 0.0, 3600.0),
    "fallback": Setting(0.5, 0.0, 1.0),
}


def groups_of(task: FleetTask) -> dict[str, tuple[int, ...]]:
    """Pools that scale together, by role, in the task's order."""
    roles: dict[str, list[int]] = {}
    for index, pool in enumerate(task.pools):
        roles.setdefault(pool.role, []).append(index)
    return {role: tuple(pools) for role, pools in roles.items()}


def placement_settings(task: FleetTask) -> dict[str, Setting]:
    """The settings of the placement, where there is a choice."""
    return SPOT_SETTINGS if any(pool.purchase == "spot" for pool in task.pools) else {}


def place(
    wanted: Array, task: FleetTask, pools: tuple[int, ...], values: Mapping[str, Array], figures: Mapping[str, Array]
) -> Array:
    """[episode, pool of the group]: orders for `wanted` replicas."""
    limits = np.array([task.pools[index].max_replicas for index in pools], np.float64)
    spot = np.array([task.pools[index].purchase == "spot" for index in pools])
    if not spot.any():
        return _fill(wanted, limits)
    names = [task.pools[index].name for index in pools]
    ages = np.stack([figures[f"{name}.since_refused_s"] for name in names], axis=1)
    up = np.stack([figures[f"{name}.up"] for name in names], axis=1)
    share, over, memory, fallback = (values[name][:, 0] for name in SPOT_SETTINGS)
    base = np.ceil(share * wanted - 1e-9)
    on_spot = np.ceil((1.0 + over) * (wanted - base) - 1e-9)
    is_open = spot[None, :] & (ages >= memory[:, None])
    # Where every zone has refused lately, all of them are tried again.
    is_open = np.where(is_open.any(axis=1, keepdims=True), is_open, spot[None, :])
    orders = _spread(on_spot, is_open)
    missing = np.maximum(wanted - base - (up * spot).sum(axis=1), 0.0)
    on_demand = base + np.ceil(fallback * missing - 1e-9)
    orders[:, ~spot] = _fill(on_demand, limits[~spot])
    return np.minimum(orders, limits)


def _spread(wanted: Array, is_open: Array) -> Array:
    """Replicas spread evenly over the open pools, the first ones taking what is left over."""
    count = np.maximum(is_open.sum(axis=1), 1)
    rank = np.cumsum(is_open, axis=1) - 1
    each, left = wanted // count, wanted % count
    return np.where(is_open, each[:, None] + (rank < left[:, None]), 0.0)


def _fill(wanted: Array, limits: Array) -> Array:
    """Replicas put into the pools in order, each up to its limit."""
    before = np.concatenate(([0.0], np.cumsum(limits)[:-1]))
    return np.asarray(np.clip(wanted[:, None] - before[None, :], 0.0, limits[None, :]))
