"""The informed rule with corrections: what a learned policy sees, and what its outputs change.

The policy sees the latest readings and what the informed rule asks for, and answers with a few numbers around zero:
more or fewer replicas of each group, how many of those that are there stay beyond that, sleeping replicas, and batch
jobs. Each replica that arrives breaks promises (its caches are empty, and the router sends everybody there), so one
that stays for the next wave can be worth its price.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.informed import Informed
from llmserve_env.fleet.rules.placement import groups_of, place
from llmserve_env.fleet.rules.reading import SIGNALS
from llmserve_env.fleet.rules.rule import Decisions, RuleBatch
from llmserve_env.fleet.rules.usual import usual_figures
from llmserve_env.fleet.task import FleetTask

HISTORY = 12
"""Readings that the policy sees of each signal."""
REPLICAS_SHARE = 0.3
"""Correction of 1: so many replicas, as a share of the group's usual number."""
KEPT = "kept"
ASLEEP_REPLICAS = 2.0
BATCH_SHARE = 0.5
LIMIT = 5.0
"""Features are cut off here, so that a strange day cannot drive the policy anywhere."""


def action_names(task: FleetTask) -> tuple[str, ...]:
    """What the corrections correct, in order."""
    names = [f"{role} {what}" for role in groups_of(task) for what in ("replicas", KEPT)]
    if any(pool.purchase == "spot" for pool in task.pools):
        names.append("on-demand replicas")
    if any(pool.max_asleep for pool in task.pools):
        names.append("asleep")
    if task.batch is not None:
        names.append("batch_share")
    return tuple(names)


class CorrectedRule:
    """A batch of episodes side by side; `look` and `decide` take turns."""

    def __init__(self, task: FleetTask, settings: Mapping[str, float], episodes: int) -> None:
        self.task, self._groups = task, groups_of(task)
        self._rule = RuleBatch(Informed, task, [settings] * episodes)
        self._usual = usual_figures(task)
        self._past: list[Array] = []
        self._figures: dict[str, Array] = {}
        self._levels: dict[str, Array] = {}
        self._coming: dict[str, Array] = {}

    @property
    def num_features(self) -> int:
        """Length of what `look` returns per episode."""
        groups, pools = len(self._groups), len(self.task.pools)
        return HISTORY * (len(SIGNALS) + 2) + 10 + 3 * groups + 4 * pools

    @property
    def num_actions(self) -> int:
        """Corrections per episode."""
        return len(action_names(self.task))

    def look(self, observations: Array) -> Array:
        """Features [episode, feature] of the observations before a decision."""
        figures = self._rule.figures(observations)
        self._figures = figures
        usual_total = float(sum(pool.usual_replicas for pool in self.task.pools))
        now = [figures[name] / self._usual[name] for name in SIGNALS]
        now += [np.log1p(figures["queue"] / usual_total), 20.0 * (1.0 - figures["attainment"])]
        self._past = [*self._past[-(HISTORY - 1) :], np.stack(now, axis=1)]
        seen = [self._past[0]] * (HISTORY - len(self._past)) + self._past
        own = self._own_figures(figures) + self._group_figures(figures) + self._pool_figures(figures)
        features = np.concatenate([*seen, np.stack(own, axis=1)], axis=1)
        return np.asarray(np.clip(features, -LIMIT, LIMIT))

    def _own_figures(self, figures: Mapping[str, Array]) -> list[Array]:
        batch = self.task.batch
        deadline_s = 1.0 if batch is None else batch.deadline_s
        loads = 1.0 if batch is None else float(batch.jobs_per_load)
        return [
            figures["time_s"] / self.task.length_s,
            figures["kv_use"],
            figures["tpot_ms"] / self.task.slo.tpot_ms,
            np.log1p(figures["ttft_ms"] / self.task.slo.ttft_ms),
            200.0 * (1.0 - figures["attainment_so_far"]),
            *self._error_budget(figures),
            figures["batch_backlog"] / loads,
            figures["batch_deadline_s"] / deadline_s,
            figures["batch_running"] / 100.0,
        ]

    def _error_budget(self, figures: Mapping[str, Array]) -> list[Array]:
        """Promises broken as a share of what the first rung of the credits allows: by now, and in the whole episode."""
        rungs = self.task.prices.credits
        allowed = 1.0 - rungs[0].below if rungs else 1.0
        pace = (1.0 - figures["attainment_so_far"]) / allowed
        return [pace, pace * figures["time_s"] / self.task.length_s]

    def _group_figures(self, figures: Mapping[str, Array]) -> list[Array]:
        """What the rule asks for, and how far the replicas are from it."""
        found = []
        for role in self._groups:
            reading = self._rule.reading(role, figures)
            level = cast(Informed, self._rule.scalers[role]).held_level(reading)
            self._levels[role] = level[:, 0]
            there, coming = reading.ready[:, 0], reading.ready[:, 0] + reading.pending[:, 0]
            self._coming[role] = coming
            unit = 0.25 * reading.usual
            found += [level[:, 0] / reading.usual, (there - level[:, 0]) / unit, (coming - level[:, 0]) / unit]
        return found

    def _pool_figures(self, figures: Mapping[str, Array]) -> list[Array]:
        found = []
        for pool in self.task.pools:
            usual = max(pool.usual_replicas, 1)
            found += [
                figures[f"{pool.name}.up"] / usual,
                figures[f"{pool.name}.booting"] / usual,
                figures[f"{pool.name}.asleep"] / 4.0,
                np.log1p(figures[f"{pool.name}.since_refused_s"] / 600.0) - 2.0,
            ]
        return found

    def decide(self, corrections: Array) -> Decisions:
        """Decisions of the rule with these corrections [episode, action]."""
        task, rest = self.task, iter(corrections.T)
        serving = np.zeros((len(corrections), len(task.pools)))
        for role, pools in self._groups.items():
            unit = REPLICAS_SHARE * sum(task.pools[index].usual_replicas for index in pools)
            limit = sum(task.pools[index].max_replicas for index in pools)
            level = np.ceil(self._levels[role] + unit * next(rest) - 1e-9)
            kept = np.minimum(self._coming[role], level + np.round(unit * np.maximum(next(rest), 0.0)))
            wanted = np.clip(np.maximum(level, kept), 1.0, limit)
            serving[:, pools] = place(wanted, task, pools, self._rule.values, self._figures)
        limits = np.array([pool.max_replicas for pool in task.pools])
        names = action_names(task)
        if "on-demand replicas" in names:
            on_demand = [pool.purchase != "spot" for pool in task.pools]
            moved = np.round(REPLICAS_SHARE * limits[on_demand].sum() / 3.0 * next(rest))
            serving[:, on_demand] = np.clip(serving[:, on_demand] + moved[:, None], 0.0, limits[on_demand])
        found = self._rule.complete(serving, self._figures)
        asleep, share = found.asleep, found.batch_share
        if "asleep" in names:
            most = np.array([pool.max_asleep for pool in task.pools])
            asleep = np.clip(np.round(asleep + ASLEEP_REPLICAS * next(rest)[:, None]), 0.0, most[None, :])
        if "batch_share" in names:
            share = np.clip(share + BATCH_SHARE * next(rest), 0.0, 1.0)
        return Decisions(found.serving, asleep, share, found.token_budget)
