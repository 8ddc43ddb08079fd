"""Play a submitted agent again: whether it makes the same choices, and how it does on seeds that are not official."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llmserve_env.evaluation.evaluate import evaluate
from llmserve_env.evaluation.runner import Runner
from llmserve_env.leaderboard.submission import Submission
from llmserve_env.leaderboard.submitting import submit
from llmserve_env.tasks.catalog import load_task


@dataclass(frozen=True, slots=True)
class PlayedAgain:
    """What playing an agent again showed."""

    num_same: int
    num_episodes: int
    fresh_scores: dict[str, tuple[float, ...]]
    """Task -> scores on as many fresh seeds."""


def played_again(
    submission: Submission, agent: str, fresh_seed_start: int, runner: Runner, **options: Any
) -> PlayedAgain:
    """Play an agent on the official seeds of a submission, and on as many seeds from `fresh_seed_start`."""
    tasks, count = [load_task(task.id) for task in submission.tasks], len(submission.tasks[0].episodes)
    card = submission.agent.model_copy(update={"played_as": agent})
    anew = submit(card, submission.suite, tasks, count, runner, **options)
    pairs = [
        (before.actions, after.actions)
        for old, new in zip(submission.tasks, anew.tasks, strict=True)
        for before, after in zip(old.episodes, new.episodes, strict=True)
    ]
    seeds = range(fresh_seed_start, fresh_seed_start + count)
    fresh = evaluate([agent], tasks, seeds, runner, options={agent: options})
    return PlayedAgain(
        num_same=sum(before == after for before, after in pairs),
        num_episodes=len(pairs),
        fresh_scores={task.id: tuple(result.score for result in fresh if result.task_id == task.id) for task in tasks},
    )
