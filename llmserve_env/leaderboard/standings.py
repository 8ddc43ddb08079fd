"""Standings: the verified submissions of a suite, ranked by their mean score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmserve_env.evaluation.runner import Runner
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from llmserve_env.evaluation.statistics import Summary, summarise
from llmserve_env.leaderboard.submission import AgentCard, Submission, read_submission
from llmserve_env.leaderboard.verifying import Verified, verify


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a leaderboard."""

    submission: Submission
    file: str
    score: Summary
    """Over the official seeds, each the mean of its scores on the suite's tasks."""
    tasks: dict[str, Summary]
    rank: int | None
    """None for a ceiling, which sees the traffic to come, and where official seeds were left out: they differ."""

    @property
    def agent(self) -> AgentCard:
        return self.submission.agent

    @property
    def place(self) -> str:
        """The rank as tables show it."""
        if self.agent.sees_the_future:
            return "ceiling"
        return "unranked" if self.rank is None else str(self.rank)

    @property
    def num_episodes(self) -> int:
        return len(self.submission.tasks[0].episodes)


def verified_files(folder: Path, runner: Runner | None = None) -> list[tuple[Path, Verified]]:
    """Every submission in a folder, replayed, by the names of their files; the first that does not fit is an error."""
    return [(path, verify(read_submission(path), runner)) for path in sorted(folder.glob("*.json"))]


def standings(found: Sequence[tuple[Path, Verified]]) -> dict[str, list[Entry]]:
    """Suite -> entries, best first."""
    suites: dict[str, list[Entry]] = {}
    for path, verified in found:
        entry = _entry(path, verified)
        suites.setdefault(entry.submission.suite, []).append(entry)
    return {suite: _ranked(entries) for suite, entries in sorted(suites.items())}


def _entry(path: Path, verified: Verified) -> Entry:
    per_seed = np.mean([scores for scores in verified.scores.values()], axis=0)
    return Entry(
        submission=verified.submission,
        file=path.name,
        score=summarise(per_seed.tolist()),
        tasks={task: summarise(scores) for task, scores in verified.scores.items()},
        rank=None,
    )


def _ranked(entries: Sequence[Entry]) -> list[Entry]:
    best_first = sorted(entries, key=lambda entry: (-entry.score.mean, entry.file))
    ranked, rank = [], 0
    for entry in best_first:
        if entry.agent.sees_the_future or entry.num_episodes < len(REPORTED_SEEDS):
            ranked.append(entry)
            continue
        rank += 1
        ranked.append(Entry(entry.submission, entry.file, entry.score, entry.tasks, rank))
    return ranked
