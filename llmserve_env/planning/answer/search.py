"""Find the answer: the smallest fleet of every GPU and tier by bisection, the cheapest of them, verified.

Every configuration of the grid is simulated on every search seed, except those that the first seeds already rule out. A
configuration is accepted on a fleet if each objective is kept there with the protocol's confidence. The cheapest
accepted one is then simulated on fresh seeds. If it breaks a promise there, those seeds join the search and the next
ones are taken to verify the next recommendation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from llmserve_env.agents.constant import vllm_default_knobs
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.planning.answer.answer import Answer, Configured, Followed, Option, seeds_text
from llmserve_env.planning.answer.configurations import active_tiers, configurations
from llmserve_env.planning.answer.load import tier_load
from llmserve_env.planning.answer.objectives import Objective, is_hopeless, objectives_of, verdicts
from llmserve_env.planning.answer.playing import configured, followed, play_followed, promises_of, tally_all
from llmserve_env.planning.answer.protocol import MAX_ROUNDS, Protocol
from llmserve_env.profiles.prices import price_text
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import at_rate, on_fleet
from llmserve_env.workloads import describe

IDLE_SHARE = 0.02
"""Share of the capacity at which requests hardly ever meet; a request that is late there is late at any load."""
HARDLY_ANY = 0.005
"""Share of requests below which a sentence says `hardly any` instead of giving the figure."""
START_SHARE = 0.9
"""The search begins at the fleet that carries this share of the mean load at saturation."""
FIRST_SEEDS = 2
"""Seeds after which a configuration that cannot be accepted any more is dropped."""


@dataclass
class Search:
    """One round of the search, on its seeds; every fleet is simulated once."""

    task: Task
    objectives: tuple[Objective, ...]
    protocol: Protocol
    seeds: tuple[int, ...]
    runner: Runner
    known: dict[tuple[str, int, int], Configured] = field(default_factory=dict)

    def point(self, profile: str, tier: int, replicas: int) -> Configured:
        """A fleet with the best configuration of a tier."""
        key = (profile, tier, replicas)
        if key not in self.known:
            task = on_fleet(self.task, replicas, profile)
            rows = configurations(task, tier)
            self.known[key] = self._best(task, rows, self._counted(task, rows))
        return self.known[key]

    def _best(self, task: Task, rows: Array, counted: Sequence[Array]) -> Configured:
        """The configuration with the largest margin; ties go to the first, which is nearest to vLLM's defaults."""
        found = [
            configured(
                task, row, promises_of(self.objectives, verdicts(self.objectives, one, self.protocol.confidence))
            )
            for row, one in zip(rows, counted, strict=True)
        ]
        return max(found, key=lambda one: (round(one.worst.margin, 9), round(one.kept_share, 9)))

    def _counted(self, task: Task, rows: Array) -> list[Array]:
        """Tallies of every configuration: on the first seeds for those that they rule out, on all for the others."""
        first, rest = self.seeds[:FIRST_SEEDS], self.seeds[FIRST_SEEDS:]
        counted: list[Array] = list(tally_all(task, rows, first, self.objectives, self.runner))
        share = len(first) / len(self.seeds)
        left = [i for i, one in enumerate(counted) if not is_hopeless(self.objectives, one, share)]
        if left and rest:
            more = tally_all(task, rows[left], rest, self.objectives, self.runner)
            for i, one in zip(left, more, strict=True):
                counted[i] = np.concatenate((counted[i], one))
        return counted

    def option(self, profile: str, tier: int) -> Option:
        """The smallest fleet of one GPU and tier that keeps every promise."""
        alone = tier_load(on_fleet(self.task, 1, profile), tier, describe(self.task.workload).mean_rps)
        count, is_monotone = smallest(
            lambda replicas: self.point(profile, tier, replicas).is_sure,
            self.protocol.max_replicas,
            start=int(START_SHARE * alone.utilisation),
        )
        sizes = sorted(size for name, one, size in self.known if (name, one) == (profile, tier))
        return Option(
            profile=profile,
            tier=tier,
            price_usd_per_hour=on_fleet(self.task, 1, profile).fleet.costs.price_usd_per_hour,
            replicas=count,
            points=tuple(self.known[profile, tier, size] for size in sizes),
            is_monotone=is_monotone,
        )

    def own(self) -> Configured:
        """The task's own fleet: the highest precision that keeps every promise, otherwise what comes nearest to it."""
        spec = self.task.deployment
        task = on_fleet(self.task, spec.replicas)
        points = []
        for tier in active_tiers(self.task):
            # On every seed, because the best of configurations that all fail is wanted too.
            rows = configurations(task, tier)
            counted = tally_all(task, rows, self.seeds, self.objectives, self.runner)
            points.append(self._best(task, rows, list(counted)))
        sure = [point for point in points if point.is_sure]
        return sure[0] if sure else max(points, key=lambda point: point.worst.margin)


def smallest(keeps: Callable[[int], bool], limit: int, start: int = 1) -> tuple[int | None, bool]:
    """The smallest count up to `limit` that keeps a promise, and whether the counts tried were monotone.

    Growing steps from `start` bracket the smallest count, bisection finds it, and its two neighbours are verified. If
    any count that was tried contradicts the result, all counts are tried from 1 upwards instead.
    """
    tried: dict[int, bool] = {}
    low, high = _bracket(lambda count: tried.setdefault(count, keeps(count)), limit, min(max(start, 1), limit))
    if high is None:
        return None, True
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


def _bracket(keeps: Callable[[int], bool], limit: int, start: int) -> tuple[int, int | None]:
    """A count that breaks the promise (or 0) and a larger one that keeps it (None where not even the limit does)."""
    count, step = start, 1
    if keeps(count):
        while count > 1 and keeps(max(count - step, 1)):
            count, step = max(count - step, 1), 2 * step
        return (0, 1) if count == 1 else (max(count - step, 1), count)
    while count < limit:
        larger = min(count + step, limit)
        if keeps(larger):
            return count, larger
        count, step = larger, 2 * step
    return count, None


def cheapest(options: Sequence[Option]) -> Configured | None:
    """The fleet of lowest price that keeps every promise; of equal ones the one at higher precision."""
    kept = [option.best for option in options if option.best is not None]
    return min(kept, key=lambda one: (one.usd_per_hour, one.tier, one.replicas), default=None)


def find_answer(task: Task, protocol: Protocol | None = None, runner: Runner | None = None) -> Answer:
    """The answer for a task; the same arguments give the same answer, on any runner."""
    protocol, runner = protocol or Protocol(), runner or Threads()
    objectives = objectives_of(task, protocol.target)
    impossible = impossible_objectives(task, objectives, protocol, runner)
    profiles = protocol.profiles or (task.deployment.profile,)
    for rounds in range(MAX_ROUNDS):
        search = Search(task, objectives, protocol, protocol.search_seeds(rounds), runner)
        runner.progress.stage("smallest fleets" if rounds == 0 else f"smallest fleets, round {rounds + 1}")
        options = [] if impossible else [search.option(*choice) for choice in _choices(task, profiles)]
        best = cheapest(options)
        runner.progress.stage("fresh traffic")
        recommended = None if best is None else _follow(task, best, objectives, protocol, rounds, runner)
        if recommended is None or recommended.is_kept:
            break
    own = search.own()
    defaults = (task.default_knobs, vllm_default_knobs(task))
    plain, vllm = (_follow(task, own, objectives, protocol, rounds, runner, knobs) for knobs in defaults)
    return Answer(
        task_id=task.id,
        protocol=protocol.as_dict(),
        prices=_prices(task, profiles),
        impossible=impossible,
        options=tuple(options),
        recommended=recommended,
        own=_follow(task, own, objectives, protocol, rounds, runner),
        default_knobs=plain,
        vllm_defaults=vllm,
        search_seeds=seeds_text(search.seeds),
        fresh_seeds=seeds_text(protocol.fresh_seeds(rounds)),
        rounds=rounds,
    )


def _choices(task: Task, profiles: Sequence[str]) -> list[tuple[str, int]]:
    """Every GPU with every tier that its profile offers."""
    return [(profile, tier) for profile in profiles for tier in active_tiers(on_fleet(task, 1, profile))]


def _prices(task: Task, profiles: Sequence[str]) -> tuple[str, ...]:
    """What each GPU costs, and where the price comes from."""
    fleets = [on_fleet(task, 1, profile) for profile in profiles]
    return tuple(price_text(one.deployment.profile, one.fleet.costs.price_usd_per_hour) for one in fleets)


def _follow(
    task: Task,
    chosen: Configured,
    objectives: tuple[Objective, ...],
    protocol: Protocol,
    rounds: int,
    runner: Runner,
    knobs: Array | None = None,
) -> Followed:
    """A fleet on the fresh seeds of a round, under its configuration or under these knobs."""
    fleet = on_fleet(task, chosen.replicas, chosen.profile)
    row = fleet.knobs_from_mapping(chosen.knobs) if knobs is None else knobs
    episodes = play_followed(fleet, row, protocol.fresh_seeds(rounds), runner)
    return followed(fleet, row, episodes, objectives, protocol.confidence)


def impossible_objectives(
    task: Task, objectives: tuple[Objective, ...], protocol: Protocol, runner: Runner
) -> tuple[str, ...]:
    """Objectives that even an almost idle fleet of the best tier and configuration breaks."""
    runner.progress.stage("an idle fleet")
    seeds, mean_rps = protocol.search_seeds(0), describe(task.workload).mean_rps
    values: list[list[float]] = []
    kept = np.zeros(len(objectives), bool)
    for profile in protocol.profiles or (task.deployment.profile,):
        fleet = on_fleet(task, 1, profile)
        for tier in active_tiers(fleet):
            load = tier_load(fleet, tier, mean_rps)
            quiet = at_rate(fleet, min(IDLE_SHARE / max(load.utilisation, 1e-9), 1.0))
            rows = configurations(fleet, tier)
            # The batch cap does not matter to requests that hardly ever meet.
            rows = rows[named(rows)["batch_cap"] == named(rows[0])["batch_cap"]]
            counted = tally_all(quiet, rows, seeds, objectives, runner)
            found = [verdicts(objectives, one, protocol.confidence) for one in counted]
            kept |= np.any([[verdict.is_kept for verdict in one] for one in found], axis=0)
            values.append([verdict.value for verdict in max(found, key=lambda one: min(v.margin for v in one))])
    best = np.array(values)
    said = []
    for i, one in enumerate(objectives):
        if not kept[i]:
            said.append(f"{one.text}: {_idle_text(one, best[:, i])}")
    return tuple(said)


def _idle_text(objective: Objective, values: Array) -> str:
    """How far an almost idle fleet gets, for every GPU tried."""
    if objective.share is None:
        return f"even an almost idle fleet takes {values.min():,.1f} ms"
    if values.max() < HARDLY_ANY:
        return "even on an almost idle fleet hardly any request is that fast"
    return f"even an almost idle fleet keeps this for only {values.max():.1%} of requests"
