"""What happens to the recommended fleet when traffic or fleet differ from what was expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.arrays import Array
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.runner import Runner
from llmserve_env.planning.answer.answer import Followed
from llmserve_env.planning.answer.objectives import Objective
from llmserve_env.planning.answer.playing import followed
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import at_rate, on_fleet
from llmserve_env.workloads import sample

LOADS = (0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6)
"""Multiples of the expected traffic."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A change, and how the recommended configuration does under it."""

    name: str
    found: Followed


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The changes that a team asks about, and a sweep of the load."""

    scenarios: tuple[Scenario, ...]
    """The expected traffic first."""
    loads: tuple[tuple[float, Followed], ...]
    """Results by multiple of the expected traffic."""

    @property
    def first_broken_load(self) -> float | None:
        """The smallest load of the sweep at which a promise breaks."""
        return next((load for load, found in self.loads if not found.is_kept), None)


@dataclass(frozen=True)
class _Case:
    """A fleet, its traffic and a configuration, as work that a runner can send to another process."""

    task: Task
    knobs: Array
    seeds: tuple[int, ...]
    objectives: tuple[Objective, ...]
    confidence: float
    prompt_factor: float = 1.0


def _play(case: _Case) -> Followed:
    traffic = None
    if case.prompt_factor != 1.0:
        traffic = [with_longer_prompts(case.task, seed, case.prompt_factor) for seed in case.seeds]
    episodes = play(ConstantAgent(case.knobs), case.task, case.seeds, traffic)
    return followed(case.task, case.knobs, episodes, case.objectives, case.confidence)


def with_longer_prompts(task: Task, seed: int, factor: float) -> RequestTable:
    """The requests of a seed with prompts `factor` times as long, as far as the context window allows."""
    requests = sample(task.workload, seed)
    longest = task.deployment.max_model_len - requests.output_tokens
    longer = np.rint(requests.prompt_tokens * factor).astype(np.int64)
    return replace(requests, prompt_tokens=np.clip(longer, requests.prompt_tokens, np.maximum(longest, 1)))


def measure_sensitivity(
    fleet: Task,
    knobs: Array,
    seeds: Sequence[int],
    objectives: tuple[Objective, ...],
    confidence: float,
    runner: Runner,
) -> Sensitivity:
    """The recommended fleet under other traffic, and with one replica less."""
    runner.progress.stage("sensitivity")

    def case(task: Task, prompt_factor: float = 1.0) -> _Case:
        return _Case(task, knobs, tuple(seeds), objectives, confidence, prompt_factor)

    cases = {"twice the prompt length": case(fleet, 2.0)}
    if fleet.deployment.replicas > 1:
        cases["one replica down"] = case(on_fleet(fleet, fleet.deployment.replicas - 1))
    swept = [case(at_rate(fleet, load)) for load in LOADS]
    found = runner.map(_play, [*cases.values(), *swept])
    loads = dict(zip(LOADS, found[len(cases) :], strict=True))
    scenarios = [
        Scenario("as expected", loads[1.0]),
        Scenario("20 % less traffic", loads[0.8]),
        Scenario("20 % more traffic", loads[1.2]),
        *(Scenario(name, one) for name, one in zip(cases, found, strict=False)),
    ]
    return Sensitivity(tuple(scenarios), tuple(loads.items()))
