"""`heuristic`: what a careful operator would script, one rule per knob.

It reads only what the wire shows (queue, occupancy, lengths, rates, attainment), so it plays the same in process and
over HTTP. The rules and where they come from are in docs/agents.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.engine.tiers import faster_tiers
from llmserve_env.tasks.task import Task

MIN_CAP, MAX_CAP = 32, 192
GROW, SHRINK = 1.5, 0.9
"""Batch cap: multiplied by one of these per window."""
QUEUE_PRESSURE = 0.1
"""Waiting over running requests from which the queue is under pressure."""
OCCUPANCY_LOW, OCCUPANCY_HIGH = 0.55, 0.85
KV_UP, KV_DOWN = 0.15, 0.05
MIN_KV = 0.3
SURGE_UP, SURGE_DOWN = 1.3, 0.8
"""Arriving prompt tokens over their long-run average: above the first a faster tier is taken,
below the second the usual one again."""
LOAD_SMOOTHING = 0.02
"""Weight of a window in the long-run average load."""
SPECULATION_MAX_ACTIVE = 16
"""Running requests per replica up to which spare compute pays for drafts."""
SHORT_PROMPT_TOKENS, LONG_PROMPT_TOKENS = 512, 1024
"""Mean prompts below the first draft deeply, above the second not at all."""
ATTAINMENT_TARGET = 0.95


class HeuristicAgent:
    """Rules after Orca (batch from the queue), vLLM (KV from occupancy) and Decima (load-dependent modes)."""

    name = "heuristic"

    def __init__(self) -> None:
        self._average_tps = np.empty(0)
        self._replicas = 1
        self._calm_tier = self._surge_tier = 0

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._average_tps = np.zeros(len(rngs))
        self._replicas = task.deployment.replicas
        self._calm_tier, *faster = faster_tiers(task.fleet.costs.tiers)
        self._surge_tier = faster[0] if faster else self._calm_tier

    def act(self, view: AgentView) -> Array:
        if view.step == 0:
            return view.knobs.copy()
        m = view.metrics
        pressure = m["queue_depth"] > QUEUE_PRESSURE * np.maximum(m["active_requests"], 1.0)
        values = view.knobs.copy()
        now, knobs = named(view.knobs), named(values)
        knobs["batch_cap"] = self._batch_cap(view, now["batch_cap"], pressure)
        knobs["kv_budget_fraction"] = self._kv_budget(view, now["kv_budget_fraction"])
        knobs["speculation_depth"] = self._speculation(view, pressure)
        knobs["quantization_tier"] = self._tier(view, now["quantization_tier"])
        # Chunked prefill already keeps long prompts from stalling decodes; a split would take GPUs out for seconds.
        knobs["prefill_decode_split"] = 0.0
        knobs["priority_routing"] = pressure | (m["slo_attainment"] < ATTAINMENT_TARGET)
        return values

    def _batch_cap(self, view: AgentView, cap: Array, pressure: Array) -> Array:
        """As in Orca, the batch follows the queue; without a queue, room above the running requests shrinks slowly."""
        grown = np.minimum(np.ceil(cap * GROW), MAX_CAP)
        shrunk = np.maximum(np.floor(cap * SHRINK), MIN_CAP)
        idle = view.metrics["active_requests"] < 0.5 * cap * self._replicas
        chosen: Array = np.where(pressure, grown, np.where(idle, shrunk, cap))
        return chosen

    def _kv_budget(self, view: AgentView, budget: Array) -> Array:
        """As vLLM sizes its pool: keep the occupancy in a band; a preemption means that the pool is too small."""
        tight = (view.metrics["kv_cache_occupancy"] > OCCUPANCY_HIGH) | (view.preemptions > 0)
        roomy = view.metrics["kv_cache_occupancy"] < OCCUPANCY_LOW
        change = np.where(tight, KV_UP, np.where(roomy, -KV_DOWN, 0.0))
        chosen: Array = np.clip(np.round(budget + change, 4), MIN_KV, 1.0)
        return chosen

    def _speculation(self, view: AgentView, pressure: Array) -> Array:
        """Drafts use idle compute: only with few running requests, and deeper where prompts are short."""
        spare = (view.metrics["active_requests"] <= SPECULATION_MAX_ACTIVE * self._replicas) & ~pressure
        prompt = view.metrics["mean_prompt_tokens"]
        depth = np.where(prompt < SHORT_PROMPT_TOKENS, 2, np.where(prompt < LONG_PROMPT_TOKENS, 1, 0))
        return np.where(spare, depth, 0)

    def _tier(self, view: AgentView, tier: Array) -> Array:
        """As in Decima, a mode per load level: a surge over the usual load is served at lower precision."""
        load = view.metrics["arrival_rate_rps"] * view.metrics["mean_prompt_tokens"]
        weight = 1.0 if view.step == 1 else LOAD_SMOOTHING
        self._average_tps = self._average_tps + weight * (load - self._average_tps)
        surge = load / np.maximum(self._average_tps, 1e-9)
        return np.where(surge > SURGE_UP, self._surge_tier, np.where(surge < SURGE_DOWN, self._calm_tier, tier))
