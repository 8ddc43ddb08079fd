"""What the defaults achieve on the same traffic: the zero of scores that count requests.

A component counts by its gain over the defaults on the same requests, as a share of the mean gain of the best known
control. An episode that loses more requests than the defaults, for the same bill or a higher one,
gains nothing: its score is theirs, 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from llmserve_env.env.episode import Episode, PlayedEpisode
from llmserve_env.graders.components import components
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.task import Task

BILL_TOLERANCE = 1e-9
"""Bills that differ by less than this share are the same bill."""


@dataclass(frozen=True, slots=True)
class DefaultEpisode:
    """The defaults on one seed."""

    num_lost: int
    cost_usd: float
    components: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Key:
    """A task, compared by its content."""

    digest: str
    task: Task = field(compare=False)


def default_episode(task: Task, seed: int) -> DefaultEpisode:
    """The defaults on this seed; played once per task and seed."""
    return _play_defaults(_Key(task_digest(task), task), seed)


@lru_cache(maxsize=4096)
def _play_defaults(key: _Key, seed: int) -> DefaultEpisode:
    episode, knobs = Episode(key.task), key.task.default_knobs
    episode.reset(seed)
    for _ in range(key.task.steps):
        episode.step(knobs)
    played = episode.played()
    return DefaultEpisode(num_lost(played), played.totals()["cost_usd"], components(played))


def num_lost(episode: PlayedEpisode) -> int:
    """Requests that were turned away or left."""
    return int(episode.requests.is_lost.sum())


def is_compared(episode: PlayedEpisode) -> bool:
    """Whether the episode is graded against the defaults on its traffic; a real engine's traffic cannot be replayed."""
    return episode.task.grader.counts == "requests" and episode.mode == "sim"


def loses_more_for_nothing(episode: PlayedEpisode) -> bool:
    """Whether an episode loses more requests than the defaults on the same traffic without a lower bill."""
    defaults = default_episode(episode.task, episode.seed)
    is_cheaper = episode.totals()["cost_usd"] < defaults.cost_usd * (1.0 - BILL_TOLERANCE)
    return num_lost(episode) > defaults.num_lost and not is_cheaper
