"""Episodes of an agent on a task, played side by side, and what each came to.

Seeds come from disjoint ranges, so that nothing is reported on traffic it was trained or tuned on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from llmserve_env.agents.agent import Agent, BranchingAgent, view_of
from llmserve_env.agents.forecast import FORECAST_SEEDS
from llmserve_env.agents.registry import make_agent
from llmserve_env.env.episode import Episode, Trajectory
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.graders import grade_episode
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.task import Task

Progress = Callable[[int], object]

SEED_RANGES = {
    "references": range(100_000, 110_000),
    "tuning": range(200_000, 210_000),
    "evaluation": range(300_000, 310_000),
    "forecast": FORECAST_SEEDS,
    "training": range(1_000_000, 2**31),
}
"""What a seed may be used for. `tuning` finds constants and chooses checkpoints; `evaluation` is what tables report."""

BATCH = 10
"""Episodes played side by side; figures do not depend on it."""


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


def play(agent: Agent, task: Task, seeds: Sequence[int], progress: Progress | None = None) -> list[Episode]:
    """Play the seeds side by side. Each episode comes out as if played alone."""
    batch = EpisodeBatch.simulated(task, len(seeds))
    for index, seed in enumerate(seeds):
        batch.reset(index, seed)
    agent.reset(task, [stream(seed, POLICY_STREAM) for seed in seeds])
    if isinstance(agent, BranchingAgent):
        agent.attach(batch)
    trajectories = [Trajectory.empty(task.steps) for _ in seeds]
    for step in range(task.steps):
        knobs = agent.act(view_of(batch, step))
        batch.step(knobs)
        for e, trajectory in enumerate(trajectories):
            trajectory.record(batch, e, knobs[e])
        if progress:
            progress(len(seeds))
    return [_finished(task, seed, trajectory) for seed, trajectory in zip(seeds, trajectories, strict=True)]


def _finished(task: Task, seed: int, trajectory: Trajectory) -> Episode:
    episode = Episode(task)
    episode.seed, episode.trajectory = seed, trajectory
    return episode


def result_of(agent_name: str, episode: Episode) -> EpisodeResult:
    """Grade a finished episode and add up its figures."""
    grade = grade_episode(episode)
    terms, metrics = episode.trajectory.terms, episode.trajectory.metrics
    offered = float(terms["offered"].sum())
    return EpisodeResult(
        agent=agent_name,
        task_id=episode.task.id,
        seed=int(episode.seed or 0),
        score=float(grade.score),
        total_reward=float(terms["reward"].sum()),
        slo_attainment=float((terms["slo"] * terms["offered"]).sum() / offered) if offered else 1.0,
        throughput_tps=float(metrics["throughput_tps"].mean()),
        cost_usd=float(terms["cost_usd"].sum()),
        breakdown={name: float(value) for name, value in grade.breakdown.items()},
    )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an evaluation that can be played anywhere: names and seeds only."""

    agent: str
    task: str
    seeds: tuple[int, ...]


def chunks(agents: Sequence[str], tasks: Sequence[str], seeds: Sequence[int], size: int = BATCH) -> list[Chunk]:
    """All pieces of an evaluation, in the order of the report."""
    return [
        Chunk(agent, task, tuple(seeds[i : i + size]))
        for agent in agents
        for task in tasks
        for i in range(0, len(seeds), size)
    ]


def evaluate_chunk(chunk: Chunk, progress: Progress | None = None) -> list[EpisodeResult]:
    """Play and grade one piece."""
    agent = make_agent(chunk.agent)
    episodes = play(agent, load_task(chunk.task), chunk.seeds, progress)
    return [result_of(agent.name, episode) for episode in episodes]


def evaluate(pieces: Sequence[Chunk], jobs: int = 1, progress: Progress | None = None) -> list[EpisodeResult]:
    """Play and grade all pieces, `jobs` at a time; the compiled core runs outside Python's lock, so threads do."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        found = pool.map(lambda chunk: evaluate_chunk(chunk, progress), pieces)
        return [result for results in found for result in results]
