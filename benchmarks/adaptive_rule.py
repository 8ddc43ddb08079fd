"""A control rule with two modes and a KV pool that follows its use, for `benchmarks.adaptivity`.

With `foresight` it knows the prompt tokens that will arrive in the next seconds, which no deployed controller can
know, so it is a ceiling. Without foresight it uses only the last window, so it could be deployed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOB, NAMES, named
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.tasks.task import Task
from llmserve_env.units import PS_PER_S

REPLICA_PREFILL_TPS = 15_000.0
"""Approximate prompt tokens per second that one A100 prefills at FP16: the unit of `surge_load`."""
FORGET_ACCEPTANCE = 0.03
"""Acceptance is unknown while drafts are off, so its estimate rises by this per step until drafts are tried again."""
START_ACCEPTANCE = 0.6


@dataclass(frozen=True, slots=True)
class Rule:
    """Knobs in calm (`_calm`) and in a surge (`_surge`), and the thresholds that distinguish them."""

    cap_calm: int
    cap_surge: int
    kv_calm: float
    kv_surge: float
    kv_gain: float
    """The pool is at least this times what is in use, plus `kv_margin`."""
    kv_margin: float
    depth_calm: int
    min_acceptance: float
    """Least estimated acceptance at which drafts are used."""
    max_running: int
    """Most running requests per replica at which drafts are used."""
    tier_calm: int
    tier_surge: int
    priority: int
    surge_load: float
    """Least prefill load per replica that counts as a surge."""
    lead_s: int
    lag_s: int

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Rule:
        """A rule read from the data file."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    def as_mapping(self) -> dict[str, float]:
        """The rule as stored in the data file."""
        return asdict(self)


GRID: dict[str, tuple[float, ...]] = {
    "cap_calm": (24, 32, 48, 64, 96, 128, 192, 256, 512),
    "cap_surge": (32, 48, 64, 96, 128, 192, 256, 512),
    "kv_calm": (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0),
    "kv_surge": (0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0),
    "kv_gain": (0.0, 0.9, 1.0, 1.1, 1.25, 1.5),
    "kv_margin": (0.0, 0.02, 0.04, 0.06, 0.1, 0.15),
    "depth_calm": (0, 1, 2, 3, 4),
    "min_acceptance": (0.0, 0.4, 0.5, 0.6, 0.7, 0.8),
    "max_running": (4, 8, 12, 16, 24, 32, 64),
    "tier_calm": (0, 1),
    "tier_surge": (0, 1),
    "priority": (0, 1),
    "surge_load": (0.15, 0.25, 0.35, 0.5, 0.65, 0.8, 1.0),
    "lead_s": (0, 1, 2, 3),
    "lag_s": (0, 1, 2, 3, 5, 8),
}
"""Values the search tries."""

START = Rule(128, 128, 0.1, 0.3, 1.0, 0.05, 0, 0.6, 24, 0, 1, 1, 0.5, 1, 2)


class RuleAgent:
    """Play a rule."""

    def __init__(self, rule: Rule, *, foresight: bool, name: str = "rule") -> None:
        self.name = name
        self._rule = rule
        self._foresight = foresight
        self._load = np.empty(0)
        self._acceptance = np.empty(0)
        self._active = np.empty(0)

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._acceptance = np.full(len(rngs), START_ACCEPTANCE)
        self._active = np.array([name in task.knobs.active for name in NAMES])
        self._load = np.zeros((len(rngs), task.steps))

    def attach(self, batch: EpisodeBatch) -> None:
        """Receive the prompt tokens of every second; only `_is_surge` decides how many of them may be used."""
        steps, replicas = batch.task.steps, batch.task.deployment.replicas
        requests, environment = batch.engine.state.requests, batch.engine.state.environment
        for e in range(batch.num_episodes):
            rows = requests[e, : int(environment["num_requests"][e])]
            second = rows["arrival_at_ps"] // PS_PER_S
            tokens = np.bincount(second, weights=rows["prompt_tokens"], minlength=steps)[:steps]
            self._load[e] = tokens / (replicas * REPLICA_PREFILL_TPS)

    def _is_surge(self, step: int) -> Array:
        """Whether any second from `lag_s` before the last one to `lead_s` ahead (with foresight) is a surge."""
        first = max(step - 1 - self._rule.lag_s, 0)
        last = step + self._rule.lead_s + 1 if self._foresight else step
        seen = self._load[:, first:last]
        surge: Array = seen.max(axis=1) > self._rule.surge_load if seen.shape[1] else np.zeros(len(self._load), bool)
        return surge

    def act(self, view: AgentView) -> Array:
        rule, metrics = self._rule, view.metrics
        surge = self._is_surge(view.step)
        now, kv = named(view.knobs), KNOB["kv_budget_fraction"]
        drafted = (now["speculation_depth"] > 0) & (metrics["acceptance_rate"] > 0.0)
        if view.step > 0:
            self._acceptance = np.where(drafted, metrics["acceptance_rate"], self._acceptance + FORGET_ACCEPTANCE)
        used = metrics["kv_cache_occupancy"] * now[kv.name]
        pool = np.maximum(np.where(surge, rule.kv_surge, rule.kv_calm), rule.kv_gain * used + rule.kv_margin)
        is_light = metrics["active_requests"] < rule.max_running * view.task.deployment.replicas
        drafts = ~surge & is_light & (self._acceptance > rule.min_acceptance)
        values = np.tile(view.task.default_knobs, (view.num_episodes, 1))
        knobs = named(values)
        knobs["batch_cap"] = np.where(surge, rule.cap_surge, rule.cap_calm)
        knobs[kv.name] = np.round(np.clip(pool, kv.low, kv.high), 3)
        knobs["speculation_depth"] = np.where(drafts, rule.depth_calm, 0)
        knobs["quantization_tier"] = np.where(surge, rule.tier_surge, rule.tier_calm)
        knobs["priority_routing"] = rule.priority
        return np.where(self._active, values, view.task.default_knobs)
