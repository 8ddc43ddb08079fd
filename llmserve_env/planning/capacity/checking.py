"""Check a task: its load against the fleet's capacity, and which knobs matter for its promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.planning.answer.answer import Answer
from llmserve_env.planning.answer.configurations import active_tiers
from llmserve_env.planning.answer.load import TierLoad, tier_load
from llmserve_env.planning.answer.objectives import Objective, Verdict, objectives_of, verdicts
from llmserve_env.planning.answer.playing import tally_all
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import WorkloadSummary, describe

NUM_SEEDS = 4
"""Seeds on which knobs are varied."""
MATTERS = 0.005
"""Share of requests that a knob must move to matter."""


@dataclass(frozen=True, slots=True)
class KnobEffect:
    """What one knob does to the worst promise while the others stay at the best configuration of the task's fleet."""

    name: str
    values: tuple[float, ...]
    kept: tuple[float, ...]
    """Per value: share of requests for which the worst promise is kept (of a mean, the limit over it)."""

    @property
    def span(self) -> float:
        """Difference between its best and its worst value."""
        return max(self.kept) - min(self.kept)

    @property
    def best_value(self) -> float:
        return self.values[int(np.argmax(self.kept))]

    @property
    def worst_value(self) -> float:
        return self.values[int(np.argmin(self.kept))]


@dataclass(frozen=True, slots=True)
class TaskCheck:
    """What a check finds besides the answer."""

    traffic: WorkloadSummary
    loads: tuple[TierLoad, ...]
    effects: tuple[KnobEffect, ...]
    """Effects of the knobs, the largest first."""


def check_task(task: Task, answer: Answer, protocol: Protocol, runner: Runner | None = None) -> TaskCheck:
    """Simulate the task around its answer; the findings are the same every time."""
    runner = runner or Threads()
    runner.progress.stage("load and knobs")
    traffic = describe(task.workload)
    loads = runner.map(_Load(task, traffic.mean_rps), active_tiers(task))
    objectives = objectives_of(task, protocol.target)
    base, seeds = task.knobs_from_mapping(answer.own.knobs), protocol.search_seeds(0)[:NUM_SEEDS]
    effects = [_effect(task, name, base, seeds, objectives, runner) for name in task.knobs.active]
    return TaskCheck(traffic, tuple(loads), tuple(sorted(effects, key=lambda effect: -effect.span)))


@dataclass(frozen=True)
class _Load:
    """`tier_load` of one task, as work that a runner can send to another process."""

    task: Task
    mean_rps: float

    def __call__(self, tier: int) -> TierLoad:
        return tier_load(self.task, tier, self.mean_rps)


def _effect(
    task: Task, name: str, base: Array, seeds: Sequence[int], objectives: tuple[Objective, ...], runner: Runner
) -> KnobEffect:
    values = next(knob.levels for knob in task.knob_table if knob.name == name)
    rows = np.tile(base, (len(values), 1))
    named(rows)[name] = values
    counted = tally_all(task, rows, seeds, objectives, runner)
    kept = [worst_share(objectives, verdicts(objectives, one, Protocol().confidence)) for one in counted]
    return KnobEffect(name, tuple(values), tuple(kept))


def worst_share(objectives: Sequence[Objective], found: Sequence[Verdict]) -> float:
    """How well the worst objective is kept: its share, or the limit over the mean where that is smaller than 1."""
    values = [
        verdict.value if one.share is not None else min(one.limit_ms / verdict.value, 1.0)
        for one, verdict in zip(objectives, found, strict=True)
        if not np.isnan(verdict.value)
    ]
    return min(values, default=1.0)
