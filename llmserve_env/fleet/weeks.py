"""Which episodes are played for what: week 1 to calibrate, tune and train, week 2 to report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from llmserve_env.errors import ConfigError
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.series import Half, RateSeries, load_series, shipped_series
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

TUNING_SEED, TRAINING_SEED, CHOICE_SEED, REFINING_SEED, REPORTED_SEED = 10_000, 20_000, 30_000, 40_000, 90_000
TUNING_EPISODES, REFINING_EPISODES = 56, 20
SWINGS = (1.0, 0.7, 1.3)
"""Exponents of the rates in training: a policy shall serve other services than the two that it was trained on."""


def shipped() -> tuple[RateSeries, ...]:
    """The series in the package."""
    return tuple(load_series(name) for name in shipped_series())


def episodes(
    task: FleetTask,
    services: Sequence[RateSeries],
    half: Half,
    count: int,
    first_seed: int,
    not_before_s: float = 0.0,
) -> Iterator[Traffic]:
    """So many episodes of a half of each series in turn, spread evenly over it; more than fit begin again elsewhere.

    Those that begin before `not_before_s` are left out.
    """
    if count < 1:
        raise ConfigError(f"--episodes must be at least 1; got {count}")
    per_series = -(-count // len(services))
    for number in range(count):
        series, nth = services[number % len(services)], number // len(services)
        starts = series.starts(half, task.length_s)
        at = nth * len(starts) // per_series if per_series <= len(starts) else nth % len(starts)
        if starts[at] >= not_before_s:
            yield task.traffic(series, starts[at], first_seed + number)


def tuning_worlds(task: FleetTask) -> Worlds:
    """The episodes on which rules are tuned."""
    return Worlds.of(episodes(task, shipped(), "train", TUNING_EPISODES, TUNING_SEED))


def refining_traffics(task: FleetTask) -> list[Traffic]:
    """Episodes of all of week 1 on which the engine chooses among a rule's settings."""
    return list(episodes(task, shipped(), "train", REFINING_EPISODES, REFINING_SEED))


def training_worlds(task: FleetTask, count: int) -> Worlds:
    """The episodes on which a policy is trained: the services, and services that swing less and more than they do."""
    services = [series.swung(exponent) for exponent in SWINGS for series in shipped()]
    return Worlds.of(episodes(task, services, "train", count, TRAINING_SEED))


def held_out_traffic(task: FleetTask, first_s: float) -> Iterator[Traffic]:
    """Episodes of week 1 from `first_s` on, two of each start of both services, on which a policy is chosen."""
    count = 2 * sum(len(series.starts("train", task.length_s)) for series in shipped())
    return episodes(task, shipped(), "train", count, CHOICE_SEED, first_s)
