"""Verify a submission by replaying every episode. Nothing that the file claims is believed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from llmserve_env.env.episode import Episode, replay
from llmserve_env.errors import InvalidLogError, LLMServeError, VersionMismatchError
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.graders import grade_episode
from llmserve_env.graders.grade import check_log
from llmserve_env.leaderboard.submission import (
    REWARD_DECIMALS,
    Submission,
    SubmittedEpisode,
    SubmittedTask,
    log_of,
    record_digest,
)
from llmserve_env.tasks.catalog import SUITES, load_task
from llmserve_env.tasks.digest import task_digest
from llmserve_env.version import ENVIRONMENT_VERSION

TOLERANCE = 0.51 * 10.0**-REWARD_DECIMALS
"""Rewards and scores in a submission are rounded, and may differ from the replay by no more."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A submission whose every episode was replayed, with the scores that the replays gave."""

    submission: Submission
    scores: dict[str, tuple[float, ...]]
    """Task -> a score per official seed, in their order."""


def verify(submission: Submission, runner: Runner | None = None) -> Verified:
    """Replay a submission; InvalidLogError or VersionMismatchError says what does not fit."""
    if submission.sha256 != submission.content_hash():
        raise InvalidLogError("sha256 does not fit the content: the file was changed after it was written")
    _check_suite(submission)
    pieces = [(submission, task, episode) for task in submission.tasks for episode in task.episodes]
    scores = iter((runner or Threads()).map(_replayed_score, pieces))
    return Verified(submission, {task.id: tuple(next(scores) for _ in task.episodes) for task in submission.tasks})


def _check_suite(submission: Submission) -> None:
    """The right tasks in the right versions, on the official seeds."""
    if submission.suite not in SUITES:
        raise InvalidLogError(f"there is no suite {submission.suite!r}; known: {', '.join(SUITES)}")
    expected, given = SUITES[submission.suite], tuple(task.id for task in submission.tasks)
    if given != tuple(expected):
        raise InvalidLogError(f"the {submission.suite} suite has {', '.join(expected)}; got {', '.join(given)}")
    if submission.environment_version != ENVIRONMENT_VERSION:
        raise VersionMismatchError(
            f"played on environment {submission.environment_version!r}; here is {ENVIRONMENT_VERSION!r}: submit again"
        )
    counts = {task.id: len(task.episodes) for task in submission.tasks}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InvalidLogError(f"every task must have the same number of episodes; got {shown}")
    official = REPORTED_SEEDS[: len(submission.tasks[0].episodes)]
    for task in submission.tasks:
        here = load_task(task.id)
        if (task.version, task.digest) != (here.version, task_digest(here)):
            raise VersionMismatchError(
                f"{task.id}: played on version {task.version} ({task.digest[:12]}); here is version {here.version} "
                f"({task_digest(here)[:12]}): submit again"
            )
        seeds = tuple(episode.seed for episode in task.episodes)
        if seeds != tuple(official):
            pairs = enumerate(zip_longest(seeds, official, fillvalue="none"), 1)
            number, (has, needs) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
            raise InvalidLogError(
                f"{task.id}: the official seeds are {REPORTED_SEEDS.start}, {REPORTED_SEEDS.start + 1}, … in order, "
                f"each once; episode {number} should have {needs}, but has {has}"
            )


def _replayed_score(piece: tuple[Submission, SubmittedTask, SubmittedEpisode]) -> float:
    submission, task, claimed = piece
    where = f"{task.id}, seed {claimed.seed}"
    try:
        episode = _replayed(submission, task, claimed)
    except VersionMismatchError:
        raise
    except LLMServeError as error:
        raise InvalidLogError(f"{where}: {error}") from error
    paid = episode.trajectory.terms["reward"][: episode.step_count]
    if len(claimed.rewards) != len(paid):
        raise InvalidLogError(f"{where}: {len(paid)} actions but {len(claimed.rewards)} rewards; give one each")
    wrong = np.flatnonzero(np.abs(np.array(claimed.rewards) - paid) > TOLERANCE)
    if len(wrong):
        step = int(wrong[0])
        raise InvalidLogError(
            f"{where}: step {step + 1} claims a reward of {claimed.rewards[step]!r}, but its replay pays "
            f"{float(paid[step]):.{REWARD_DECIMALS}f}: an action, a reward or the seed was changed"
        )
    score = grade_episode(episode).score
    if abs(score - claimed.score) > TOLERANCE:
        raise InvalidLogError(
            f"{where}: claims a score of {claimed.score!r}, but its replay gives {score:.{REWARD_DECIMALS}f}"
        )
    if claimed.record != record_digest(episode.played(), submission.package_version):
        raise InvalidLogError(
            f"{where}: all rewards fit, but the replay is not the episode that was recorded: an action that alters no "
            "reward, the package's version or the record was changed"
        )
    return float(score)


def _replayed(submission: Submission, task: SubmittedTask, claimed: SubmittedEpisode) -> Episode:
    here, num_actions = load_task(task.id), sum(count for count, _ in claimed.actions)
    # Counted before the runs are written out: a short file can claim more actions than memory holds.
    if num_actions != here.steps:
        raise InvalidLogError(f"has {num_actions} actions; an episode has {here.steps}")
    log = log_of(claimed, task, submission.environment_version)
    check_log(log, here)
    return replay(log, here)
