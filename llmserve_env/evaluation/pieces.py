"""Episodes of an agent as pieces of work that can be played anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmserve_env.agents.registry import make_agent
from llmserve_env.env.episode import Episode, Trajectory
from llmserve_env.evaluation.parallel import Progress, Runner
from llmserve_env.evaluation.rollout import play
from llmserve_env.tasks.task import Task


@dataclass(frozen=True)
class AgentPiece:
    """One episode to play."""

    task: Task
    agent: str
    seed: int


def play_piece(piece: AgentPiece) -> Trajectory:
    """What happened; arrays that travel well."""
    return play(make_agent(piece.agent), piece.task, [piece.seed])[0].trajectory


def play_agent(
    task: Task, agent: str, seeds: Sequence[int], runner: Runner, progress: Progress | None = None
) -> list[Episode]:
    """Finished episodes of an agent, one per seed; the same on every runner."""
    found = runner.map(play_piece, [AgentPiece(task, agent, seed) for seed in seeds], progress)
    episodes = []
    for seed, trajectory in zip(seeds, found, strict=True):
        episode = Episode(task)
        episode.seed, episode.trajectory = seed, trajectory
        episodes.append(episode)
    return episodes
