"""Tuning of rules on the surrogate: settings all over their ranges, then around the best, until that gains nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.fluid.calibration import Calibration
from llmserve_env.fleet.fluid.episodes import FluidEpisodes
from llmserve_env.fleet.fluid.need import ahead, needs
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.rules.oracle import Oracle
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.rule import RuleBatch, rule_settings
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.tuned import Settings, settings_so_far

FUTURE_WINDOWS = 32
RANDOM_SETTINGS = 512
ROUND, ROUNDS = 250, 4
"""Settings of one round of local search; after so many rounds, a thousand settings, a gain below `ENOUGH` ends it."""
ENOUGH = 0.005
HEAT, THROUGH = 8, 0.2
"""Worlds of the heat, and the share of settings that play on all worlds after it."""
GUIDE, FROM_GUIDE = 4.0, 24
"""Price of a missing promise to the search that leads to fleets which keep theirs: more than the replicas for it cost.
And the settings that the search for dollars takes over from it."""
SIDE_BY_SIDE = 1500
"""Episodes played side by side: more do not fit the processor's cache."""

Measure = Callable[[FluidEpisodes], Array]
"""What is to be as high as possible: a figure per episode."""


def net_usd(episodes: FluidEpisodes) -> Array:
    """What tuning is about."""
    return episodes.net_usd


def guiding_usd(episodes: FluidEpisodes) -> Array:
    """Dollars, less a multiple of the price of the promises that are missing to the last rung of the credits.

    Below that rung nothing is earned at all, so dollars alone say "serve less": the smallest fleet is the best of those
    that fail, and a search that begins among them ends there.
    """
    rungs = episodes.task.prices.credits
    missing = np.maximum(rungs[-1].below - episodes.attainment, 0.0) if rungs else 0.0
    return np.asarray(episodes.net_usd - GUIDE * missing * episodes.promised_usd)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best settings of a rule, what they earn per episode on the surrogate, and how many were tried."""

    settings: Settings
    usd: float
    tried: int


def play_settings(
    task: FleetTask,
    worlds: Worlds,
    calibration: Calibration,
    scaler: type[Scaler],
    candidates: Sequence[Settings],
    measure: Measure = net_usd,
) -> Array:
    """The measure's mean over all worlds, for each candidate."""
    per_batch = max(1, SIDE_BY_SIDE // len(worlds))
    parts = [candidates[k : k + per_batch] for k in range(0, len(candidates), per_batch)]
    return np.concatenate([_play_part(task, worlds, calibration, scaler, part, measure) for part in parts])


def _play_part(
    task: FleetTask,
    worlds: Worlds,
    calibration: Calibration,
    scaler: type[Scaler],
    candidates: Sequence[Settings],
    measure: Measure,
) -> Array:
    rows = np.tile(np.arange(len(worlds)), len(candidates))
    batch = RuleBatch(scaler, task, [each for each in candidates for _ in range(len(worlds))])
    episodes = FluidEpisodes(task, worlds, calibration, rows)
    need = needs(worlds, calibration.flow) if scaler is Oracle else None
    while not episodes.is_over:
        futures = None
        if need is not None:
            futures = {role: ahead(each, rows, episodes.window, FUTURE_WINDOWS) for role, each in need.items()}
        episodes.step(batch.decide(episodes.observe(), futures))
    return np.asarray(measure(episodes).reshape(len(candidates), len(worlds)).mean(axis=1))


class Race:
    """Plays candidates on a few worlds first, and only the best of them on all."""

    def __init__(self, task: FleetTask, worlds: Worlds, calibration: Calibration, scaler: type[Scaler]) -> None:
        few = worlds.some(np.linspace(0, len(worlds) - 1, min(HEAT, len(worlds))).astype(np.int64))
        self._task, self._calibration, self._scaler, self._few, self._all = task, calibration, scaler, few, worlds

    def __call__(self, candidates: Sequence[Settings]) -> Array:
        """Mean dollars per episode; of those that lost the heat, a value below all that are played on every world."""
        values = self._play(self._few, candidates)
        order = np.argsort(values)[::-1]
        through = order[: max(1, int(len(order) * THROUGH))]
        played = self._play(self._all, [candidates[int(k)] for k in through])
        values = np.minimum(values, played.min()) - 1.0
        values[through] = played
        return np.asarray(values)

    def guide(self, candidates: Sequence[Settings]) -> Array:
        """`guiding_usd` on the worlds of the heat: a way to good settings needs no more of them."""
        return self._play(self._few, candidates, guiding_usd)

    def _play(self, worlds: Worlds, candidates: Sequence[Settings], measure: Measure = net_usd) -> Array:
        return play_settings(self._task, worlds, self._calibration, self._scaler, candidates, measure)


class Search:
    """Random search and then local search, until a thousand further settings gain less than half a percent."""

    def __init__(self, settings: Mapping[str, Setting], seed: int = 0, first: Sequence[Settings] = ()) -> None:
        """`first` are settings to begin with, besides the documented defaults."""
        self._settings, self._rng, self._reach = settings, np.random.default_rng(seed), 0.15
        known = [{name: setting.default for name, setting in settings.items()}, *first]
        self._units, self._values = np.zeros((0, len(settings))), np.zeros(0)
        self._next = np.concatenate((units_of(settings, known), self._rng.random((RANDOM_SETTINGS, len(settings)))))
        self._history: list[float] = []

    @property
    def is_over(self) -> bool:
        """Whether the last thousand settings gained too little to go on."""
        best = self._history
        return len(best) > ROUNDS + 1 and best[-1] - best[-1 - ROUNDS] < ENOUGH * abs(best[-1])

    def best(self, count: int) -> list[Settings]:
        """The best settings so far, from the best on."""
        return named(self._settings, self._units[np.argsort(self._values)[::-1][:count]])

    def round(self, play: Callable[[Sequence[Settings]], Array]) -> Tuned:
        """Play the next settings; returns the best so far."""
        found = play(named(self._settings, self._next))
        self._units, self._values = np.concatenate((self._units, self._next)), np.concatenate((self._values, found))
        order = np.argsort(self._values)[::-1]
        self._history.append(float(self._values[order[0]]))
        self._next = neighbours(self._units[order[:24]], self._rng, self._reach)
        self._reach = max(self._reach * 0.85, 0.02)
        best = named(self._settings, self._units[order[:1]])[0]
        return Tuned(best, self._history[-1], len(self._values))


def neighbours(best: Array, rng: np.random.Generator, reach: float, count: int = ROUND) -> Array:
    """Settings around the best ones: some moved at random, some along the difference of two others."""
    width = best.shape[1]
    # The better a setting, the more neighbours it gets.
    parents = best[(len(best) * rng.random(count) ** 2).astype(np.int64)]
    moves = reach * rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.35)
    one, other = best[rng.integers(len(best), size=(2, count))]
    along = 0.7 * (one - other) * (rng.random((count, width)) < 0.7)
    is_along = rng.random((count, 1)) < 0.5
    return np.asarray(np.clip(parents + np.where(is_along, along + 0.2 * moves, moves), 0.0, 1.0))


def units_of(settings: Mapping[str, Setting], rows: Sequence[Settings]) -> Array:
    """Where settings lie in their ranges, a row each."""
    return np.array([[setting.unit(row[name]) for name, setting in settings.items()] for row in rows])


def named(settings: Mapping[str, Setting], units: Array) -> list[Settings]:
    """The settings at these places of their ranges."""
    columns = {name: setting.value(units[:, column]) for column, (name, setting) in enumerate(settings.items())}
    return [{name: float(column[row]) for name, column in columns.items()} for row in range(len(units))]


def searched_settings(task: FleetTask, token_budget: int, name: str) -> dict[str, Setting]:
    """All settings of a rule, with the token budget of the surrogate's recordings."""
    pinned = {"token_budget": Setting(token_budget, token_budget, token_budget, "whole")}
    return {**rule_settings(SCALERS[name], task), **pinned}


def begin_search(task: FleetTask, token_budget: int, name: str, first: Sequence[Settings] = ()) -> Search:
    """A search for a rule's settings, from its defaults, `first` and, where there are any, the settings kept."""
    settings = searched_settings(task, token_budget, name)
    kept = settings_so_far(task, name)
    kept = {**kept, "token_budget": float(token_budget)}
    return Search(settings, 0, [*first, kept] if set(kept) == set(settings) else first)


def tune_rule(
    task: FleetTask, worlds: Worlds, calibration: Calibration, name: str, report: Callable[[Tuned], None]
) -> Tuned:
    """Tune the rule of this name; `report` is given the best so far after every round.

    A first search leads to fleets that keep their promises, and the search for dollars goes on from its best settings.
    """
    race = Race(task, worlds, calibration, SCALERS[name])
    guide = begin_search(task, calibration.token_budget, name)
    led = _to_the_end(guide, race.guide, lambda found: None)
    search = begin_search(task, calibration.token_budget, name, guide.best(FROM_GUIDE))

    def tried_in_all(found: Tuned) -> Tuned:
        return replace(found, tried=led.tried + found.tried)

    return tried_in_all(_to_the_end(search, race, lambda found: report(tried_in_all(found))))


def _to_the_end(search: Search, play: Callable[[Sequence[Settings]], Array], report: Callable[[Tuned], None]) -> Tuned:
    while True:
        found = search.round(play)
        report(found)
        if search.is_over:
            return found
