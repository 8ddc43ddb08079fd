"""Check a task before spending time on it: its load, whether its SLOs are feasible, and which knobs matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.capacity.load import TierLoad, tier_load
from llmserve_env.planning.tuning.constants import Outcome, play_constants
from llmserve_env.planning.tuning.halving import halve
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import at_rate
from llmserve_env.workloads import WorkloadSummary, describe

IDLE_SHARE = 0.02
"""Share of the capacity at which requests hardly ever meet; a request that is late there is late at any load."""
NUM_CONFIGURATIONS = 24
MATTERS = 0.01
"""Mean reward per step that a knob must move to matter."""


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """What one knob does while the others stay at the best constant found."""

    name: str
    values: tuple[float, ...]
    outcomes: tuple[Outcome, ...]

    @property
    def span(self) -> float:
        """Mean reward per step between its best and its worst value."""
        rewards = [found.reward for found in self.outcomes]
        return max(rewards) - min(rewards)

    @property
    def best_value(self) -> float:
        return self.values[int(np.argmax([found.reward for found in self.outcomes]))]


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """The findings."""

    traffic: WorkloadSummary
    loads: tuple[TierLoad, ...]
    idle: dict[int, Outcome]
    """Per tier: what an almost idle fleet reaches, which no control can exceed."""
    defaults: Outcome
    best_knobs: Array
    best: Outcome
    effects: tuple[KnobEffect, ...]

    def feasible(self, tier: int, name: str, target: float) -> bool:
        """Whether a class could reach the target on an empty fleet."""
        return self.idle[tier].class_attainment[name] >= target


def active_tiers(task: Task) -> tuple[int, ...]:
    """Tiers that the task lets one choose."""
    return tuple(range(len(TIER_NAMES))) if "quantization_tier" in task.knobs.active else (0,)


def check_task(task: Task, num_episodes: int = 3, runner: Runner | None = None) -> TaskCheck:
    """Simulate the task briefly; the findings are the same every time."""
    runner = runner or Threads()
    seeds = SEED_RANGES["tuning"][:num_episodes]
    traffic = describe(task.workload)
    loads = runner.map(_Load(task, traffic.mean_rps), active_tiers(task))
    idle = {}
    for load in loads:
        knobs = task.default_knobs
        named(knobs)["quantization_tier"] = load.tier
        quiet = at_rate(task, min(IDLE_SHARE / max(load.utilisation, 1e-9), 1.0))
        idle[load.tier] = play_constants(quiet, knobs[None], seeds, runner)[0]
    best = halve(
        task,
        lambda outcome: outcome.reward,
        num_configurations=NUM_CONFIGURATIONS,
        num_seeds=num_episodes,
        runner=runner,
    ).best
    defaults = play_constants(task, task.default_knobs[None], seeds, runner)[0]
    effects = tuple(_effect(task, name, best.knobs, seeds, runner) for name in task.knobs.active)
    return TaskCheck(traffic, tuple(loads), idle, defaults, best.knobs, best.outcome, effects)


@dataclass(frozen=True)
class _Load:
    """`tier_load` of one task, as work that can travel."""

    task: Task
    mean_rps: float

    def __call__(self, tier: int) -> TierLoad:
        return tier_load(self.task, tier, self.mean_rps)


def _effect(task: Task, name: str, base: Array, seeds: range, runner: Runner) -> KnobEffect:
    values = next(knob.levels for knob in task.knob_table if knob.name == name)
    rows = np.tile(base, (len(values), 1))
    named(rows)[name] = values
    return KnobEffect(name, tuple(values), tuple(play_constants(task, rows, seeds, runner)))
