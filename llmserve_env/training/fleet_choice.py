"""Which of a training's policies ships: candidates by the surrogate, and the choice among them by the engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.corrected import CorrectedRule
from llmserve_env.fleet.fluid.calibration import Calibration
from llmserve_env.fleet.fluid.episodes import FluidEpisodes
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.learned import CorrectionNetwork, LearnedAgent
from llmserve_env.fleet.playing import play_agent
from llmserve_env.fleet.statistics import Estimate, gain_over
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

CANDIDATES = 6
"""Policies of a training that are played on the engine."""


class Candidates:
    """The policies that earn most on the surrogate, on episodes that training never sees."""

    def __init__(self, task: FleetTask, worlds: Worlds, calibration: Calibration) -> None:
        self._task, self._worlds, self._calibration = task, worlds, calibration
        self._best: list[tuple[float, CorrectionNetwork]] = []

    def offer(self, network: CorrectionNetwork) -> None:
        """Keep a policy if it is among the best."""
        usd = float(play_network(self._task, self._worlds, self._calibration, network).mean())
        self._best = sorted([*self._best, (usd, network)], key=lambda each: -each[0])[:CANDIDATES]

    @property
    def networks(self) -> tuple[CorrectionNetwork, ...]:
        """From the best to the worst."""
        return tuple(network for _, network in self._best)


def play_network(task: FleetTask, worlds: Worlds, calibration: Calibration, network: CorrectionNetwork) -> Array:
    """Dollars of every world on the surrogate."""
    rows = np.arange(len(worlds))
    episodes = FluidEpisodes(task, worlds, calibration, rows)
    rule = CorrectedRule(task, network.card["rule"], len(rows))
    while not episodes.is_over:
        episodes.step(rule.decide(network(rule.look(episodes.observe()))))
    return episodes.net_usd


@dataclass(frozen=True, slots=True)
class Choice:
    """A policy, and what it gains over the rule that it corrects, on the engine."""

    network: CorrectionNetwork
    gain: Estimate


def choose(
    task: FleetTask,
    rule: CorrectionNetwork,
    candidates: Sequence[CorrectionNetwork],
    traffics: Iterable[Traffic],
) -> Choice:
    """The candidate that earns most on the engine, whether it earns more than the rule or not."""
    players = [LearnedAgent(network) for network in (rule, *candidates)]
    usd = [[play_agent(task, "ppo", player, traffic).usd_per_day for player in players] for traffic in traffics]
    of_rule, *of_candidates = zip(*usd, strict=True)
    best = max(range(len(candidates)), key=lambda number: sum(of_candidates[number]))
    return Choice(candidates[best], gain_over(of_candidates[best], of_rule))
