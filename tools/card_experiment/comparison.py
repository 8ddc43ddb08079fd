"""Both columns of the experiment: the recorded episodes, and the simulator on the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from llmserve_env.agents.agent import view_of
from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.deployment import Deployment
from llmserve_env.env.episode import Episode
from llmserve_env.evaluation.statistics import summarise
from llmserve_env.profiles.host import load_host
from llmserve_env.request_outcomes import RequestOutcomes, request_figures
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.policies import policy_of
from tools.card_experiment.records import Record

RELATIVE = ("goodput_rps", "ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p99_ms")
FIGURES = ("reward", "attainment", *RELATIVE)


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure over the seeds: its mean and the bootstrap interval of the mean."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The table of the experiment."""

    live: dict[str, dict[str, Cell]]
    """Policy -> figure -> cell, on the engine."""
    simulated: dict[str, dict[str, Cell]]
    errors: dict[str, dict[str, float]]
    """Policy -> figure -> the simulator's error: relative, for reward and attainment absolute."""
    spearman: float
    """Rank correlation of the policies' mean rewards, simulator against engine; NaN for fewer than three."""


def figures_of(requests: RequestOutcomes, mean_reward: float, seconds: float) -> dict[str, float]:
    """What an operator asks of an episode."""
    found = request_figures(requests)
    met = [requests.is_met(name) for name in ("ttft", "tpot")]
    # A request is good if it broke no promise; one that was lost broke the first.
    good = ~np.any([values == 0.0 for values in met], axis=0)
    judged = ~np.all([np.isnan(values) for values in met], axis=0)
    return {
        "reward": mean_reward,
        "attainment": float(good[judged].mean()) if judged.any() else 1.0,
        "goodput_rps": float((good & judged).sum()) / seconds,
        "ttft_mean_ms": found.ttft.mean_ms,
        "ttft_p50_ms": found.ttft[50],
        "ttft_p99_ms": found.ttft[99],
        "tpot_mean_ms": found.tpot.mean_ms,
        "tpot_p99_ms": found.tpot[99],
    }


def fleet_of(task: Task, record: Record, host: str | None) -> Deployment:
    """The task's fleet with the pool that the engine reported, its scheduling mode, and the host's time."""
    fleet = replace(
        task.fleet,
        num_blocks_override=int(record.facts["num_blocks"]),
        block_tokens=int(record.facts["block_tokens"]),
        async_scheduling=True,
    )
    return fleet if host is None else replace(fleet, host=load_host(host).costs())


def simulate(task: Task, plan: EnginePlan, record: Record, host: str | None) -> dict[str, float]:
    """The same policy on the same requests in the simulator."""
    name, seed = record.key
    policy = policy_of(name, plan.defaults)
    backend = SimulatedBackend(task, fleet=fleet_of(task, record, host))
    episode = Episode(task, backend=backend)
    episode.reset(seed)
    policy.reset(task, [stream(seed, POLICY_STREAM)])
    while not episode.is_done:
        episode.step(policy.act(view_of(episode.batch, episode.step_count))[0])
    played = episode.played()
    reward = float(played.trajectory.terms["reward"][: played.step_count].mean())
    return figures_of(played.requests, reward, task.steps * task.window_s)


def compare(task: Task, plan: EnginePlan, records: Sequence[Record], host: str | None) -> Comparison:
    """Both columns, their differences and their order."""
    seconds = task.steps * task.window_s
    sides: tuple[dict[str, list[Any]], dict[str, list[Any]]] = ({}, {})
    for record in records:
        name, _ = record.key
        found = figures_of(record.requests, float(record.windows["reward"].mean()), seconds)
        sides[0].setdefault(name, []).append(found)
        sides[1].setdefault(name, []).append(simulate(task, plan, record, host))
    live, simulated = ({name: _cells(rows) for name, rows in side.items()} for side in sides)
    errors = {name: {f: _error(f, simulated[name][f].mean, live[name][f].mean) for f in FIGURES} for name in live}
    rewards = [[side[name]["reward"].mean for name in live] for side in (live, simulated)]
    rank = float(spearmanr(*rewards).statistic) if len(live) > 2 else float("nan")
    return Comparison(live, simulated, errors, rank)


def _cells(rows: list[dict[str, float]]) -> dict[str, Cell]:
    cells = {}
    for name in FIGURES:
        found = summarise([row[name] for row in rows])
        cells[name] = Cell(found.mean, *found.ci95)
    return cells


def _error(name: str, simulated: float, live: float) -> float:
    return simulated / live - 1.0 if name in RELATIVE else simulated - live
