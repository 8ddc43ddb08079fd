"""Play agents on tasks: many seeds side by side in the compiled core, and pieces of that on any runner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmserve_env.agents.agent import Agent, BranchingAgent, view_of
from llmserve_env.agents.own.loading import load_agent
from llmserve_env.env.episode import PlayedEpisode, Trajectory
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.evaluation.runner import Runner
from llmserve_env.request_table import RequestTable
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task


def play(
    agent: Agent, task: Task, seeds: Sequence[int], traffic: Sequence[RequestTable] | None = None
) -> list[PlayedEpisode]:
    """Play one episode per seed, side by side; each comes out as if it were played alone.

    `traffic` replaces the requests that the seeds would draw, one table per seed.
    """
    batch = EpisodeBatch.simulated(task, len(seeds))
    for index, seed in enumerate(seeds):
        if traffic is None:
            batch.reset(index, seed)
        else:
            batch.simulation.load(index, traffic[index], seed)
            batch.start(index, seed)
    agent.reset(task, [stream(seed, POLICY_STREAM) for seed in seeds])
    if isinstance(agent, BranchingAgent):
        agent.attach(batch)
    trajectories = [Trajectory.empty(task.steps) for _ in seeds]
    for step in range(task.steps):
        knobs = agent.act(view_of(batch, step))
        batch.step(knobs)
        for index, trajectory in enumerate(trajectories):
            trajectory.record(batch, index, knobs[index])
    return [
        PlayedEpisode(task, seed, trajectory, batch.backend.outcomes(index))
        for index, (seed, trajectory) in enumerate(zip(seeds, trajectories, strict=True))
    ]


@dataclass(frozen=True)
class PlayPiece:
    """Episodes of one agent on one task: a piece of work for a runner."""

    agent: str
    """Name of an agent, or where one of your own is."""
    task: Task
    seeds: tuple[int, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    """What `load_agent` takes besides the name."""


def play_piece(piece: PlayPiece) -> list[PlayedEpisode]:
    """Play one piece with a new agent."""
    return play(load_agent(piece.agent, **piece.options), piece.task, piece.seeds)


def play_agent(agent: str, task: Task, seeds: Sequence[int], runner: Runner, **options: Any) -> list[PlayedEpisode]:
    """One episode per seed, each of them a piece of work."""
    pieces = [PlayPiece(agent, task, (seed,), options) for seed in seeds]
    return [episode for episodes in runner.map(play_piece, pieces) for episode in episodes]
