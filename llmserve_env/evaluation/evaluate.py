"""Evaluate agents: play pieces of the evaluation on a runner, and grade every episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmserve_env.agents.own.loading import load_agent
from llmserve_env.arrays import Array
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.evaluation.play import PlayPiece, play
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.graders import grade_episode
from llmserve_env.request_outcomes import RequestSample, sample_of
from llmserve_env.tasks.task import Task

SIDE_BY_SIDE = 10
"""Episodes of one piece of work. The results do not depend on it."""


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """One graded episode."""

    agent: str
    task_id: str
    seed: int
    score: float
    total_reward: float
    slo_attainment: float
    """Share of judged requests, weighted by class, that met their SLO."""
    throughput_tps: float
    cost_usd: float
    breakdown: dict[str, float]
    requests: RequestSample
    """Latencies and endings of its requests, for percentiles."""
    usage: dict[str, int] = field(default_factory=dict)
    """Calls, decisions, unusable answers and tokens, where a language model played."""


def attained_share(terms: Array) -> float | None:
    """Share of the requests judged in these steps, weighted by class, that met their SLO; None if none was judged."""
    offered = float(terms["offered"].sum())
    return float((terms["slo"] * terms["offered"]).sum() / offered) if offered else None


def slo_attainment(episode: PlayedEpisode) -> float:
    """Share of judged requests, weighted by class, that met their SLO; 1 where none was judged."""
    share = attained_share(episode.trajectory.terms)
    return 1.0 if share is None else share


def result_of(agent_name: str, episode: PlayedEpisode) -> EpisodeResult:
    """Grade a finished episode and add up its figures."""
    grade = grade_episode(episode)
    terms, metrics = episode.trajectory.terms, episode.trajectory.metrics
    return EpisodeResult(
        agent=agent_name,
        task_id=episode.task.id,
        seed=episode.seed,
        score=float(grade.score),
        total_reward=float(terms["reward"].sum()),
        slo_attainment=slo_attainment(episode),
        throughput_tps=float(metrics["throughput_tps"].mean()),
        cost_usd=float(terms["cost_usd"].sum()),
        breakdown={name: float(value) for name, value in grade.breakdown.items()},
        requests=sample_of(episode.requests),
    )


def evaluation_pieces(
    agents: Sequence[str],
    tasks: Sequence[Task],
    seeds: Sequence[int],
    size: int = SIDE_BY_SIDE,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[PlayPiece]:
    """All pieces of an evaluation, in the order of the report."""
    return [
        PlayPiece(agent, task, tuple(seeds[i : i + size]), (options or {}).get(agent, {}))
        for agent in agents
        for task in tasks
        for i in range(0, len(seeds), size)
    ]


def evaluate_piece(piece: PlayPiece) -> list[EpisodeResult]:
    """Play and grade one piece."""
    agent = load_agent(piece.agent, **piece.options)
    results = [result_of(piece.agent, episode) for episode in play(agent, piece.task, piece.seeds)]
    used = getattr(agent, "episode_usage", [{} for _ in results])
    return [replace(result, usage=counts) for result, counts in zip(results, used, strict=True)]


def evaluate(
    agents: Sequence[str],
    tasks: Sequence[Task],
    seeds: Sequence[int],
    runner: Runner | None = None,
    size: int = SIDE_BY_SIDE,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[EpisodeResult]:
    """Results of all agents on all tasks and seeds, the same on every runner; `options` has an agent's by its name."""
    pieces = evaluation_pieces(agents, tasks, seeds, size, options)
    return [result for results in (runner or Threads()).map(evaluate_piece, pieces) for result in results]
