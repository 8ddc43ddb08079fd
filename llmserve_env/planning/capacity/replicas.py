"""How many GPUs a promise needs: the smallest fleet that keeps it, per tier, found by bisection and verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.tuning.constants import Outcome, play_constants
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import on_fleet
from llmserve_env.units import S_PER_HOUR

TARGET = 0.95
MAX_REPLICAS = 64
BATCH_CAPS = (32.0, 64.0, 128.0, 256.0)
DEPTHS = (0.0, 2.0)


@dataclass(frozen=True, slots=True)
class FleetPoint:
    """A fleet of one size and tier under its best knobs."""

    replicas: int
    attainment: float
    """The lowest attainment of any class that has an SLO."""
    knobs: Array
    outcome: Outcome
    gpu_usd_per_hour: float

    @property
    def usd_per_million_output_tokens(self) -> float:
        """GPU hours over tokens written."""
        tokens_per_hour = self.outcome.throughput_tps * S_PER_HOUR
        return self.gpu_usd_per_hour / tokens_per_hour * 1e6 if tokens_per_hour else float("inf")


@dataclass(frozen=True, slots=True)
class TierCapacity:
    """The answer for one tier on one GPU, and the fleets that were simulated to find it."""

    profile: str
    tier: int
    target: float
    answer: FleetPoint | None
    """None where not even the largest fleet allowed keeps the promise."""
    points: tuple[FleetPoint, ...]
    """By size."""
    is_monotone: bool
    """Whether every larger fleet that was tried did at least as well; where not, all sizes below were tried."""

    @property
    def tier_name(self) -> str:
        return TIER_NAMES[self.tier]


@dataclass
class Fleets:
    """Fleets of one tier, each simulated once."""

    task: Task
    tier: int
    target: float
    profile: str | None = None
    num_episodes: int = 3
    runner: Runner = field(default_factory=Threads)
    known: dict[int, FleetPoint] = field(default_factory=dict)

    def point(self, replicas: int) -> FleetPoint:
        """The fleet of this size."""
        if replicas not in self.known:
            task = on_fleet(self.task, replicas, self.profile)
            rows = candidates(task, self.tier)
            seeds = SEED_RANGES["tuning"][: self.num_episodes]
            found = play_constants(task, rows, seeds, self.runner)
            worst = [worst_class(task, outcome) for outcome in found]
            best = int(np.argmax(worst))
            price = replicas * task.fleet.costs.price_usd_per_hour
            self.known[replicas] = FleetPoint(replicas, worst[best], rows[best], found[best], price)
        return self.known[replicas]

    def keeps(self, replicas: int) -> bool:
        """Whether a fleet of this size keeps the promise."""
        return self.point(replicas).attainment >= self.target


def candidates(task: Task, tier: int) -> Array:
    """Knobs worth trying on a fleet of a tier: batch caps, drafts and order of service, with the whole KV pool."""
    tried: dict[str, tuple[float, ...]] = {"batch_cap": BATCH_CAPS, "speculation_depth": DEPTHS}
    if len(task.workload.classes) > 1:
        tried["priority_routing"] = (0.0, 1.0)
    moved = {name: values for name, values in tried.items() if name in task.knobs.active}
    rows = np.tile(task.default_knobs, (len([*product(*moved.values())]), 1))
    knobs = named(rows)
    knobs["quantization_tier"] = tier
    for row, values in zip(knobs, product(*moved.values()), strict=True):
        for name, value in zip(moved, values, strict=True):
            row[name] = value
    return rows


def worst_class(task: Task, outcome: Outcome) -> float:
    """The lowest attainment of any class that has an SLO; 1 if none has."""
    promised = [service.name for service in task.workload.classes if service.ttft_slo_ms is not None]
    return min((outcome.class_attainment[name] for name in promised), default=1.0)


def smallest(keeps: Callable[[int], bool], limit: int) -> tuple[int | None, bool]:
    """The smallest count up to `limit` that keeps a promise, and whether the counts tried were monotone.

    Doubling finds a count that does, bisection the smallest one, and its two neighbours are verified. Where a count
    contradicts, every smaller one is tried instead.
    """
    high = 1
    tried: dict[int, bool] = {}
    while not tried.setdefault(high, keeps(high)):
        if high == limit:
            return None, True
        high = min(2 * high, limit)
    low = high // 2 if high > 1 else 0
    while high - low > 1:
        middle = (low + high) // 2
        if tried.setdefault(middle, keeps(middle)):
            high = middle
        else:
            low = middle
    for count in (high - 1, high + 1):
        if 1 <= count <= limit:
            tried.setdefault(count, keeps(count))
    if all(is_kept == (count >= high) for count, is_kept in tried.items()):
        return high, True
    return next(count for count in range(1, limit + 1) if keeps(count)), False


def find_capacity(
    task: Task,
    *,
    tiers: Sequence[int],
    target: float = TARGET,
    profile: str | None = None,
    max_replicas: int = MAX_REPLICAS,
    num_episodes: int = 3,
    runner: Runner | None = None,
) -> list[TierCapacity]:
    """The smallest fleet of every tier that keeps the task's promises to a share `target` of each class."""
    found = []
    for tier in tiers:
        fleets = Fleets(task, tier, target, profile, num_episodes, runner or Threads())
        count, is_monotone = smallest(fleets.keeps, max_replicas)
        answer = None if count is None else fleets.point(count)
        points = tuple(fleets.known[size] for size in sorted(fleets.known))
        found.append(TierCapacity(profile or task.deployment.profile, tier, target, answer, points, is_monotone))
    return found


def cheapest(found: Sequence[TierCapacity]) -> TierCapacity | None:
    """The answer of lowest price; of equal ones the one at higher precision."""
    kept = [one for one in found if one.answer is not None]
    return min(kept, key=lambda one: (one.answer.gpu_usd_per_hour if one.answer else 0.0, one.tier), default=None)
