"""A rule as an agent: scalers for the groups of replicas, a placement, and the sides; on one episode or on many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.rules.placement import groups_of, place, placement_settings
from llmserve_env.fleet.rules.reading import SIGNALS, Reading
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting, stacked
from llmserve_env.fleet.rules.sides import batch_share, side_settings
from llmserve_env.fleet.rules.usual import usual_figures
from llmserve_env.fleet.task import FleetTask


@dataclass(frozen=True, slots=True)
class Decisions:
    """What is decided for a batch of episodes."""

    serving: Array
    """[episode, pool]."""
    asleep: Array
    batch_share: Array
    """[episode]."""
    token_budget: Array

    def one(self, episode: int = 0) -> FleetDecision:
        """The decision of one episode."""
        return FleetDecision(
            serving=tuple(int(count) for count in self.serving[episode]),
            asleep=tuple(int(count) for count in self.asleep[episode]),
            batch_share=float(self.batch_share[episode]),
            token_budget=int(self.token_budget[episode]),
        )


def rule_settings(scaler: type[Scaler], task: FleetTask) -> dict[str, Setting]:
    """All settings of a rule on a task; those of a scaler carry the name of their group if there are several."""
    roles = tuple(groups_of(task))
    named = {
        name if len(roles) == 1 else f"{role}.{name}": setting
        for role in roles
        for name, setting in scaler.settings.items()
    }
    return {**named, **placement_settings(task), **side_settings(task)}


class RuleBatch:
    """One rule on a batch of episodes side by side, each with settings of its own."""

    def __init__(self, scaler: type[Scaler], task: FleetTask, rows: Sequence[Mapping[str, float]]) -> None:
        self.task, self._groups = task, groups_of(task)
        self.values = stacked(rule_settings(scaler, task), rows)
        self.scalers: dict[str, Scaler] = {}
        for role in self._groups:
            prefix = "" if len(self._groups) == 1 else f"{role}."
            self.scalers[role] = scaler({name: self.values[prefix + name] for name in scaler.settings})
        self._names = {name: column for column, name in enumerate(task.feature_names)}
        self._usual = usual_figures(task)
        self._wanted: dict[str, Array] = {}

    def figures(self, observations: Array) -> dict[str, Array]:
        """The columns of a matrix of observations, by name."""
        return {name: observations[:, column] for name, column in self._names.items()}

    def decide(self, observations: Array, futures: Mapping[str, Array] | None = None) -> Decisions:
        """Decisions for observations [episode, figure]; `futures` has the loads to come, for the oracle."""
        figures = self.figures(observations)
        serving = np.zeros((len(observations), len(self.task.pools)))
        for role, pools in self._groups.items():
            reading = self.reading(role, figures, None if futures is None else futures[role])
            wanted = self.scalers[role].desired(reading)
            self._wanted[role] = wanted
            serving[:, pools] = place(wanted[:, 0], self.task, pools, self.values, figures)
        return self.complete(serving, figures)

    def complete(self, serving: Array, figures: Mapping[str, Array]) -> Decisions:
        """The decisions with these replicas, and the sides as the settings say."""
        least = np.array([pool.min_replicas for pool in self.task.pools])
        most_asleep = np.array([pool.max_asleep for pool in self.task.pools])
        ready = sum((figures[f"{pool.name}.up"] for pool in self.task.pools), np.zeros(len(serving)))
        asleep = np.zeros_like(serving)
        if "asleep" in self.values:
            asleep = np.minimum(np.round(self.values["asleep"]), most_asleep[None, :]) + np.zeros_like(serving)
        return Decisions(
            np.maximum(serving, least[None, :]),
            asleep,
            batch_share(self.values, figures, ready),
            self.values["token_budget"][:, 0],
        )

    def reading(self, role: str, figures: Mapping[str, Array], future: Array | None = None) -> Reading:
        """What the scaler of a group reads."""
        pools = [self.task.pools[index] for index in self._groups[role]]

        def total(*fields: str) -> Array:
            found = np.sum([figures[f"{pool.name}.{field}"] for pool in pools for field in fields], axis=0)
            return np.asarray(found)[:, None]

        load = {name: figures[name][:, None] for name in ("queue", "running", "kv_use")}
        if self.task.pool_metrics:
            used = np.sum([figures[f"{pool.name}.kv_use"] * figures[f"{pool.name}.up"] for pool in pools], axis=0)
            mean_use = used[:, None] / np.maximum(total("up"), 1.0)
            load = {"queue": total("queue"), "running": total("running"), "kv_use": mean_use}
        return Reading(
            step_s=self.task.window_s,
            usual=float(sum(pool.usual_replicas for pool in pools)),
            ordered=self._wanted.get(role, total("ordered_serving")),
            ready=total("up"),
            pending=total("booting", "waking"),
            limit=np.full((len(figures["queue"]), 1), float(sum(pool.max_replicas for pool in pools))),
            waiting=load["queue"],
            running=load["running"],
            kv_use=load["kv_use"],
            prompt_tps=figures["new_prompt_tps"][:, None],
            output_tps=figures["output_tps"][:, None],
            signals={name: figures[name][:, None] / self._usual[name] for name in SIGNALS},
            future=future,
        )


class RuleAgent:
    """A rule on one episode after another."""

    def __init__(self, scaler: type[Scaler], settings: Mapping[str, float]) -> None:
        self._scaler, self._settings = scaler, settings
        self._batch: RuleBatch | None = None

    def reset(self, task: FleetTask) -> None:
        """Begin an episode of a task."""
        self._batch = RuleBatch(self._scaler, task, [self._settings])

    def act(self, observation: Observation) -> FleetDecision:
        """The decision for the next window."""
        if self._batch is None:
            raise RuntimeError("call reset(task) before act(observation)")
        return self._batch.decide(observation.vector[None, :]).one()
