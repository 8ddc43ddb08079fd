"""Many constant configurations on the same seeds, side by side in the compiled core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.evaluate import slo_attainment
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.runner import Runner
from llmserve_env.graders.components import components
from llmserve_env.graders.references import Reference
from llmserve_env.request_outcomes import RequestFigures, pooled_figures, sample_of
from llmserve_env.tasks.task import Task

SIDE_BY_SIDE = 24
"""Episodes advanced in one compiled call."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a configuration achieves: means over episodes, and figures over all their requests."""

    reward: float
    slo_attainment: float
    """Share of judged requests, weighted by class, that met their SLO."""
    throughput_tps: float
    requests: RequestFigures
    """Percentiles and shares over the requests of all episodes."""
    components: dict[str, float]

    def score(self, task: Task, reference: Reference) -> float:
        """The score of the mean components, which is close to the mean of the episodes' scores."""
        weights = task.grader.weights.items()
        return sum(weight * reference.normalised(name, self.components[name]) for name, weight in weights)


class Rows:
    """An agent that holds a different row of knobs in every episode."""

    name = "constants"

    def __init__(self, knobs: Array) -> None:
        self._knobs = knobs

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        """Nothing to prepare."""

    def act(self, view: AgentView) -> Array:
        return self._knobs.copy()


@dataclass(frozen=True)
class _Piece:
    """Configurations on seeds, small enough for one call."""

    task: Task
    knobs: Array
    seeds: tuple[int, ...]


def play_rows(task: Task, knobs: Array, seeds: Sequence[int]) -> list[PlayedEpisode]:
    """One episode per row of knobs and seed; those of a row stand together, in the order of the seeds."""
    return play(Rows(np.repeat(knobs, len(seeds), axis=0)), task, list(seeds) * len(knobs))


def outcome_of(episodes: Sequence[PlayedEpisode]) -> Outcome:
    """What these finished episodes achieve together."""
    rows = np.mean([_episode_outcome(episode) for episode in episodes], axis=0)
    measured = [components(episode) for episode in episodes]
    means = {name: float(np.mean([found[name] for found in measured])) for name in measured[0]}
    reward, slo, throughput = (float(value) for value in rows)
    requests = pooled_figures([sample_of(episode.requests) for episode in episodes])
    return Outcome(reward, slo, throughput, requests, means)


def _episode_outcome(episode: PlayedEpisode) -> tuple[float, ...]:
    terms, metrics = episode.trajectory.terms, episode.trajectory.metrics
    return (
        float(terms["reward"].mean()),
        slo_attainment(episode),
        float(metrics["throughput_tps"].mean()),
    )


def _play_piece(piece: _Piece) -> list[Outcome]:
    n = len(piece.seeds)
    episodes = play_rows(piece.task, piece.knobs, piece.seeds)
    return [outcome_of(episodes[i * n : (i + 1) * n]) for i in range(len(piece.knobs))]


def play_constants(task: Task, knobs: Array, seeds: Sequence[int], runner: Runner) -> list[Outcome]:
    """The outcome of every row of knobs on all seeds."""
    size = max(SIDE_BY_SIDE // len(seeds), 1)
    pieces = [_Piece(task, knobs[i : i + size], tuple(seeds)) for i in range(0, len(knobs), size)]
    return [outcome for found in runner.map(_play_piece, pieces) for outcome in found]
