"""Both columns of the experiment: the recorded episodes, and the simulator on the same requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from llmserve_env.agents.agent import view_of
from llmserve_env.arrays import Array
from llmserve_env.backends.simulated import SimulatedBackend
from llmserve_env.engine.deployment import Deployment
from llmserve_env.env.episode import Episode, PlayedEpisode
from llmserve_env.evaluation.statistics import summarise
from llmserve_env.graders.components import per_step
from llmserve_env.graders.references import has_references, reference_for
from llmserve_env.request_outcomes import RequestOutcomes, request_figures
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import with_changes
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.health import Health, health_of
from tools.card_experiment.policies import TRAINED, TUNED, policy_of
from tools.card_experiment.records import Record

RELATIVE = ("goodput_rps", "ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p99_ms")
FIGURES = ("score", "reward", "attainment", *RELATIVE)
Windows = Array | Mapping[str, Any]
"""Terms of the reward by name, a value per window."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure over the seeds: its mean and the bootstrap interval of the mean."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class EpisodePair:
    """One recorded episode and its counterpart in the simulator."""

    policy: str
    seed: int
    live: dict[str, float]
    simulated: dict[str, float]
    health: Health


@dataclass(frozen=True, slots=True)
class Comparison:
    """The table of the experiment."""

    ranked_by: str
    """The score, or the mean reward for a task without references."""
    live: dict[str, dict[str, Cell]]
    """Policy -> figure -> cell, on the engine."""
    simulated: dict[str, dict[str, Cell]]
    errors: dict[str, dict[str, float]]
    """Policy -> figure -> the simulator's error: relative, for score, reward and attainment absolute."""
    gains: dict[str, Cell]
    """`live` and `simulated` -> what the trained policy gains over the tuned constant on the same requests."""
    spearman: float
    """Rank correlation of the policies, simulator against engine; NaN for fewer than three."""
    episodes: list[EpisodePair]


def figures_of(task: Task, requests: RequestOutcomes, windows: Windows) -> dict[str, float]:
    """What an operator asks of an episode; `windows` has the reward's terms."""
    found = request_figures(requests)
    met = [requests.is_met(name) for name in ("ttft", "tpot")]
    # A request is good if it broke no promise; one that was lost broke the first.
    good = ~np.any([values == 0.0 for values in met], axis=0)
    judged = ~np.all([np.isnan(values) for values in met], axis=0)
    return {
        **({"score": score_of(task, windows)} if has_references(task) else {}),
        "reward": float(windows["reward"].mean()),
        "attainment": float(good[judged].mean()) if judged.any() else 1.0,
        "goodput_rps": float((good & judged).sum()) / (task.steps * task.window_s),
        "ttft_mean_ms": found.ttft.mean_ms,
        "ttft_p50_ms": found.ttft[50],
        "ttft_p99_ms": found.ttft[99],
        "tpot_mean_ms": found.tpot.mean_ms,
        "tpot_p99_ms": found.tpot[99],
    }


def score_of(task: Task, windows: Windows) -> float:
    """The episode's score by the task's references, from the terms of its windows."""
    reference, shares = reference_for(task), per_step(windows)
    weights = task.grader.weights.items()
    return sum(weight * reference.normalised(name, float(shares[name].mean())) for name, weight in weights)


def fleet_of(task: Task, record: Record, host: Path | None = None) -> Deployment:
    """The task's fleet with the pool and the CUDA graphs that the engine reported, and its scheduling mode.

    `host` is the file of another host than the task's.
    """
    beside = task if host is None else with_changes(task, deployment={"host": str(host)})
    return replace(
        beside.fleet,
        num_blocks_override=int(record.facts["num_blocks"]),
        block_tokens=int(record.facts["block_tokens"]),
        graph_max_tokens=int(record.facts.get("graph_max_tokens", task.fleet.graph_max_tokens)),
        async_scheduling=True,
    )


def simulate(task: Task, plan: EnginePlan, record: Record, host: Path | None = None) -> PlayedEpisode:
    """The same policy on the same requests in the simulator."""
    name, seed = record.key
    policy = policy_of(name, plan)
    episode = Episode(task, backend=SimulatedBackend(task, fleet=fleet_of(task, record, host)))
    episode.reset(seed)
    policy.reset(task, [stream(seed, POLICY_STREAM)])
    while not episode.is_done:
        episode.step(policy.act(view_of(episode.batch, episode.step_count))[0])
    return episode.played()


def pair(task: Task, plan: EnginePlan, record: Record, host: Path | None = None) -> EpisodePair:
    """Play the counterpart of a recorded episode."""
    played = simulate(task, plan, record, host)
    terms = played.trajectory.terms[: played.step_count]
    return EpisodePair(
        *record.key,
        live=figures_of(task, record.requests, record.windows),
        simulated=figures_of(task, played.requests, terms),
        health=health_of(record, terms["reward"], task.window_s),
    )


def compare(task: Task, plan: EnginePlan, records: Sequence[Record], host: Path | None = None) -> Comparison:
    """Both columns, their differences and their order."""
    pairs = [pair(task, plan, record, host) for record in records]
    sides: dict[str, dict[str, dict[int, dict[str, float]]]] = {"live": {}, "simulated": {}}
    for found in pairs:
        sides["live"].setdefault(found.policy, {})[found.seed] = found.live
        sides["simulated"].setdefault(found.policy, {})[found.seed] = found.simulated
    live, simulated = ({name: _cells(list(rows.values())) for name, rows in side.items()} for side in sides.values())
    errors = {
        name: {f: _error(f, simulated[name][f].mean, cell.mean) for f, cell in live[name].items()} for name in live
    }
    ranked_by = "score" if has_references(task) else "reward"
    ranked = [[side[name][ranked_by].mean for name in live] for side in (live, simulated)]
    rank = float(spearmanr(*ranked).statistic) if len(live) > 2 else float("nan")
    gains = {which: _gain(side, ranked_by) for which, side in sides.items() if {TRAINED, TUNED} <= set(side)}
    return Comparison(ranked_by, live, simulated, errors, gains, rank, pairs)


def _gain(side: Mapping[str, Mapping[int, Mapping[str, float]]], figure: str) -> Cell:
    """What the trained policy gains over the tuned constant, seed by seed."""
    common = sorted(set(side[TRAINED]) & set(side[TUNED]))
    found = summarise([side[TRAINED][seed][figure] - side[TUNED][seed][figure] for seed in common])
    return Cell(found.mean, *found.ci95)


def _cells(rows: Sequence[Mapping[str, float]]) -> dict[str, Cell]:
    cells = {}
    for name in rows[0]:
        found = summarise([row[name] for row in rows])
        cells[name] = Cell(found.mean, *found.ci95)
    return cells


def _error(name: str, simulated: float, live: float) -> float:
    return simulated / live - 1.0 if name in RELATIVE else simulated - live
