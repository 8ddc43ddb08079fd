"""Make a submission: play an agent on the official seeds of a suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from llmserve_env.agents.own.loading import load_agent
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.evaluate import SIDE_BY_SIDE
from llmserve_env.evaluation.play import PlayPiece, play
from llmserve_env.evaluation.runner import Runner
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.graders import grade_episode
from llmserve_env.leaderboard.submission import AgentCard, Submission, SubmittedTask, submitted
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION


def official_seeds(episodes: int) -> range:
    """The first `episodes` official seeds."""
    if not 1 <= episodes <= len(REPORTED_SEEDS):
        raise ConfigError(f"--episodes must be from 1 to {len(REPORTED_SEEDS)}, the official seeds; got {episodes}")
    return REPORTED_SEEDS[:episodes]


def submit(
    card: AgentCard, suite: str, tasks: Sequence[Task], episodes: int, runner: Runner, **options: Any
) -> Submission:
    """Play every official episode of these tasks."""
    usage: Counter[str] = Counter()
    found = tuple(_submitted_task(card, task, official_seeds(episodes), runner, options, usage) for task in tasks)
    return Submission(
        agent=card,
        suite=suite,
        date=datetime.now(UTC).date().isoformat(),
        environment_version=ENVIRONMENT_VERSION,
        package_version=PACKAGE_VERSION,
        tasks=found,
        usage=dict(usage),
    ).hashed()


def _submitted_task(
    card: AgentCard, task: Task, seeds: range, runner: Runner, options: dict[str, Any], usage: Counter[str]
) -> SubmittedTask:
    pieces = [
        PlayPiece(card.played_as, task, tuple(seeds[i : i + SIDE_BY_SIDE]), options)
        for i in range(0, len(seeds), SIDE_BY_SIDE)
    ]
    played = []
    for episodes, used in runner.map(_played, pieces):
        played += episodes
        usage.update(used)
    return SubmittedTask(
        id=task.id,
        version=task.version,
        digest=task_digest(task),
        episodes=tuple(submitted(episode, grade_episode(episode).score) for episode in played),
    )


def _played(piece: PlayPiece) -> tuple[list[PlayedEpisode], Counter[str]]:
    """The episodes of a piece, and what a language model used in them."""
    agent = load_agent(piece.agent, **piece.options)
    episodes, usage = play(agent, piece.task, piece.seeds), Counter[str]()
    for counts in getattr(agent, "episode_usage", []):
        usage.update(counts)
    return episodes, usage
