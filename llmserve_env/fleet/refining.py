"""The engine has the last word on a rule's settings, as it has on policies: the surrogate's best play week 1 on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.agents import ORACLE, FleetAgent, OracleAgent
from llmserve_env.fleet.fluid.calibration import Calibration
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.playing import play_agent
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.rule import RuleAgent
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic
from llmserve_env.fleet.tuned import Settings, settings_so_far
from llmserve_env.fleet.tuning import ROUNDS, Race, begin_search, named, neighbours, searched_settings, units_of

Piece = tuple[Settings, Traffic]
PlayAll = Callable[[Callable[[Piece], float], Sequence[Piece]], list[float]]
"""A parallel map: what the function says of every piece, in their order."""

PROPOSED = 16
"""Settings that the surrogate likes and that differ from one another."""
LIKED = 120
PARENTS, NEIGHBOURS, REACH = 4, 12, 0.08
FINALISTS = 5
HEAT_EPISODES = 4


@dataclass(frozen=True, slots=True)
class Refined:
    """The settings that earn most on the engine, beside those that were kept before, on the same episodes."""

    settings: Settings
    usd_per_day: float
    before_usd_per_day: float
    played: int
    """Settings that were played."""


def propose(task: FleetTask, worlds: Worlds, calibration: Calibration, name: str) -> list[Settings]:
    """The settings kept so far, and others that the surrogate likes nearly as much and that differ most."""
    search, race = begin_search(task, calibration.token_budget, name), Race(task, worlds, calibration, SCALERS[name])
    for _ in range(ROUNDS):
        search.round(race)
    budget = {"token_budget": float(calibration.token_budget)}
    liked = [settings_so_far(task, name) | budget, *search.best(LIKED)]
    units = units_of(searched_settings(task, calibration.token_budget, name), liked)
    chosen = [0]
    while len(chosen) < min(PROPOSED, len(liked)):
        nearest = np.min([np.abs(units - units[k]).mean(axis=1) for k in chosen], axis=0)
        chosen.append(int(nearest.argmax()))
    return [liked[k] for k in chosen]


def refine(
    task: FleetTask,
    token_budget: int,
    name: str,
    proposed: Sequence[Settings],
    traffics: Sequence[Traffic],
    play_all: PlayAll,
) -> Refined:
    """Play the proposals and neighbours of the best on a few episodes, and the finalists on all of `traffics`."""
    settings = searched_settings(task, token_budget, name)
    heat = traffics[:: max(len(traffics) // HEAT_EPISODES, 1)][:HEAT_EPISODES]
    played = list(proposed)
    usd = _play(task, name, played, heat, play_all)
    best = units_of(settings, [played[k] for k in np.argsort(usd)[::-1][:PARENTS]])
    near = named(settings, neighbours(best, np.random.default_rng(0), REACH, NEIGHBOURS))
    usd, played = np.concatenate((usd, _play(task, name, near, heat, play_all))), [*played, *near]
    finalists = list(dict.fromkeys([0, *np.argsort(usd)[::-1][:FINALISTS].tolist()]))
    final = _play(task, name, [played[k] for k in finalists], traffics, play_all)
    winner = int(final.argmax())
    return Refined(played[finalists[winner]], float(final[winner]), float(final[0]), len(played))


def _play(
    task: FleetTask, name: str, candidates: Sequence[Settings], traffics: Sequence[Traffic], play_all: PlayAll
) -> Array:
    """Dollars per day of each candidate on the engine, mean over the episodes."""
    pieces = [(candidate, traffic) for candidate in candidates for traffic in traffics]
    usd = play_all(lambda piece: play_agent(task, name, _agent(name, piece[0]), piece[1]).usd_per_day, pieces)
    return np.asarray(np.array(usd).reshape(len(candidates), len(traffics)).mean(axis=1))


def _agent(name: str, settings: Settings) -> FleetAgent:
    return OracleAgent(settings) if name == ORACLE else RuleAgent(SCALERS[name], settings)
