"""Configurations on seeds, side by side in the compiled core: what each contributes to the objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.agents.constant import ConstantAgent
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import mapping_from_knobs, named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.runner import Runner
from llmserve_env.planning.answer.answer import Configured, Followed, Promise, stored_figures
from llmserve_env.planning.answer.objectives import Objective, Verdict, tallies, verdicts
from llmserve_env.planning.tuning.constants import SIDE_BY_SIDE, play_rows
from llmserve_env.request_outcomes import pooled_figures, sample_of
from llmserve_env.tasks.task import Task


@dataclass(frozen=True)
class _Piece:
    """Configurations on seeds, small enough for one call."""

    task: Task
    knobs: Array
    seeds: tuple[int, ...]
    objectives: tuple[Objective, ...]


def _tally(piece: _Piece) -> Array:
    """Tallies of shape (configurations, seeds, objectives, 2)."""
    episodes = play_rows(piece.task, piece.knobs, piece.seeds)
    counted = np.array([tallies(piece.objectives, episode.requests) for episode in episodes])
    return counted.reshape(len(piece.knobs), len(piece.seeds), len(piece.objectives), 2)


def tally_all(
    task: Task, knobs: Array, seeds: Sequence[int], objectives: tuple[Objective, ...], runner: Runner
) -> Array:
    """What every configuration contributes on every seed, shape (configurations, seeds, objectives, 2)."""
    size = max(SIDE_BY_SIDE // len(seeds), 1)
    pieces = [_Piece(task, knobs[i : i + size], tuple(seeds), objectives) for i in range(0, len(knobs), size)]
    return np.concatenate(runner.map(_tally, pieces))


def promises_of(objectives: Sequence[Objective], found: Sequence[Verdict]) -> tuple[Promise, ...]:
    """Objectives with their verdicts, as they are stored and shown."""
    return tuple(
        Promise(
            text=one.text,
            class_name=one.class_name,
            latency=one.latency,
            limit_ms=one.limit_ms,
            share=one.share,
            value=verdict.value,
            low=verdict.low,
            high=verdict.high,
            is_kept=verdict.is_kept,
            is_sure=verdict.is_sure,
            margin=verdict.margin,
        )
        for one, verdict in zip(objectives, found, strict=True)
    )


def configured(task: Task, knobs: Array, promises: tuple[Promise, ...]) -> Configured:
    """A configuration of the task's fleet with its promises."""
    return Configured(
        profile=task.deployment.profile,
        replicas=task.deployment.replicas,
        tier=int(named(knobs)["quantization_tier"]),
        knobs=mapping_from_knobs(knobs, task.action_knobs),
        usd_per_hour=task.deployment.replicas * task.fleet.costs.price_usd_per_hour,
        promises=promises,
    )


def followed(
    task: Task,
    knobs: Array,
    episodes: Sequence[PlayedEpisode],
    objectives: tuple[Objective, ...],
    confidence: float,
) -> Followed:
    """How a configuration did on these episodes."""
    counted = np.array([tallies(objectives, episode.requests) for episode in episodes])
    promises = promises_of(objectives, verdicts(objectives, counted, confidence))
    figures = pooled_figures([sample_of(episode.requests) for episode in episodes])
    throughput = float(np.mean([episode.trajectory.metrics["throughput_tps"].mean() for episode in episodes]))
    return Followed(
        **configured(task, knobs, promises).model_dump(exclude={"promises"}),
        promises=promises,
        throughput_tps=throughput,
        requests=stored_figures(figures),
    )


@dataclass(frozen=True)
class _Follow:
    """One configuration on some seeds, as work that a runner can send to another process."""

    task: Task
    knobs: Array

    def __call__(self, seeds: tuple[int, ...]) -> list[PlayedEpisode]:
        return play(ConstantAgent(self.knobs), self.task, seeds)


def play_followed(task: Task, knobs: Array, seeds: Sequence[int], runner: Runner) -> list[PlayedEpisode]:
    """One episode per seed under one configuration."""
    parts = [tuple(seeds[i : i + 4]) for i in range(0, len(seeds), 4)]
    return [episode for episodes in runner.map(_Follow(task, knobs), parts) for episode in episodes]
