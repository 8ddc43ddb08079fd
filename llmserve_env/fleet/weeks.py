"""Which episodes are played for what: week 1 to calibrate, tune and train, week 2 to report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmserve_env.errors import ConfigError
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.series import Half, RateSeries, load_series, shipped_series
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

TUNING_SEED, TRAINING_SEED, REPORTED_SEED = 10_000, 20_000, 90_000
TUNING_EPISODES = 28
DEFAULT_EPISODES = 28


def shipped() -> tuple[RateSeries, ...]:
    """The series in the package."""
    return tuple(load_series(name) for name in shipped_series())


def episodes(
    task: FleetTask, services: Sequence[RateSeries], half: Half, count: int, first_seed: int
) -> Iterator[Traffic]:
    """So many episodes of a half of each series in turn, spread evenly over it; more than fit begin again elsewhere."""
    if count < 1:
        raise ConfigError(f"--episodes must be at least 1; got {count}")
    per_series = -(-count // len(services))
    for number in range(count):
        series, nth = services[number % len(services)], number // len(services)
        starts = series.starts(half, task.length_s)
        at = nth * len(starts) // per_series if per_series <= len(starts) else nth % len(starts)
        yield task.traffic(series, starts[at], first_seed + number)


def tuning_worlds(task: FleetTask) -> Worlds:
    """The episodes on which rules are tuned."""
    return Worlds.of(list(episodes(task, shipped(), "train", TUNING_EPISODES, TUNING_SEED)))


def training_worlds(task: FleetTask, count: int) -> Worlds:
    """The episodes on which a policy is trained."""
    return Worlds.of(list(episodes(task, shipped(), "train", count, TRAINING_SEED)))
