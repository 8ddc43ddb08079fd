"""Runs of the engine to fit the surrogate to, on the training half alone.

Half of the episodes are led by the rules as they are tuned so far, because the surrogate has to be right where they
play. In the others, fleets wander around their load: most of them with the same margin all the time, as a good policy's
do, others too large and too small in turn, which shows what a shortage does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.outcome import WindowOutcome
from llmserve_env.fleet.rules.registry import OPERATORS, SCALERS
from llmserve_env.fleet.rules.rule import RuleAgent
from llmserve_env.fleet.series import RateSeries
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic
from llmserve_env.fleet.tuned import settings_so_far

FIRST_SEED = 700_000
SMOOTHED = 9
"""Windows over which the load is smoothed that the orders wander around."""
SMALL_SHARES = (0.3, None, None, 0.0, None, None)
"""How often fleets are too small, episode by episode; None for those that keep their margin."""
MARGINS = (0.9, 1.4)
HELD = 8
"""Windows for which a fleet that keeps its margin holds on to its replicas: each that leaves takes its caches along."""
BUDGET_EPISODES, SHORT_SHARE = 4, 0.5
LEADING = (*OPERATORS, "informed")
FIGURES = ("judged", "met", "ttft_met", "tpot_met", "ttft_ms", "tpot_ms", "queue", "running", "kv_use")
ROLES = ("prefill", "decode")
BY_ROLE = ("queue", "running", "kv_use")


@dataclass(frozen=True, slots=True)
class Recording:
    """Episodes side by side: [episode, step] unless said otherwise."""

    worlds: Worlds
    figures: dict[str, Array]
    up: Array
    """[episode, step, pool]: replicas in service, mean over the window."""
    admitted: Array
    """Batch jobs admitted."""
    token_budget: int


Leader = Callable[[Observation], FleetDecision]
Lead = Callable[[FleetTask, Traffic, np.random.Generator, int, int], Leader]
"""Who leads an episode of this number, under this token budget."""


def best_token_budget(task: FleetTask, services: Sequence[RateSeries]) -> int:
    """The budget under which the engine keeps most promises, with the same orders on the same traffic."""
    kept = {}
    for budget in task.token_budgets:
        figures = record(task, services, BUDGET_EPISODES, lambda: None, budget, lead_through_shortages).figures
        kept[budget] = float(figures["met"].sum())
    return max(kept, key=lambda budget: kept[budget])


def record(
    task: FleetTask,
    services: Sequence[RateSeries],
    episodes: int,
    finish: Callable[[], None],
    token_budget: int,
    lead: Lead | None = None,
) -> Recording:
    """Play episodes of the training half, led by `lead`, or in turn by orders that wander and by rules."""
    rng = np.random.default_rng(FIRST_SEED)
    traffics, rows = [], []
    for episode in range(episodes):
        series = services[episode % len(services)]
        starts = series.starts("train", task.length_s)
        traffic = task.traffic(series, starts[episode * 5 % len(starts)], FIRST_SEED + episode)
        traffics.append(traffic)
        rows.append(_play(task, traffic, (lead or lead_in_turn)(task, traffic, rng, episode, token_budget)))
        finish()
    data = np.array(rows)
    names = (*FIGURES, *(f"{role}.{name}" for role in ROLES for name in BY_ROLE))
    figures = {name: data[:, :, column] for column, name in enumerate(names)}
    up, admitted = data[:, :, len(names) : len(names) + len(task.pools)], data[:, :, -1]
    return Recording(Worlds.of(traffics), figures, up, admitted, token_budget)


def lead_through_shortages(
    task: FleetTask, traffic: Traffic, rng: np.random.Generator, episode: int, token_budget: int
) -> Leader:
    """Orders that are too small half of the time: with enough replicas, every budget keeps its promises."""
    return Wandering(task, traffic, rng, SHORT_SHARE, token_budget)


def lead_in_turn(
    task: FleetTask, traffic: Traffic, rng: np.random.Generator, episode: int, token_budget: int
) -> Leader:
    """Two episodes, one of each service, with orders that wander, and two led by rules that are tuned already."""
    tuned = [name for name in LEADING if settings_so_far(task, name)]
    nth = 2 * (episode // 4) + episode % 2 if tuned else episode
    if not tuned or episode // 2 % 2 == 0:
        return Wandering(task, traffic, rng, SMALL_SHARES[nth % len(SMALL_SHARES)], token_budget)
    name = tuned[nth % len(tuned)]
    rule = RuleAgent(SCALERS[name], settings_so_far(task, name) | {"token_budget": float(token_budget)})
    rule.reset(task)
    return rule.act


class Wandering:
    """Orders that wander around what the load needs."""

    def __init__(
        self,
        task: FleetTask,
        traffic: Traffic,
        rng: np.random.Generator,
        small_share: float | None,
        token_budget: int,
    ) -> None:
        loads = np.convolve(traffic.arrivals, np.full(SMOOTHED, 1.0 / SMOOTHED), "same")
        self._loads = loads / task.window_s / task.traffic_spec.mean_rps
        self._task, self._rng, self._small_share, self._token_budget = task, rng, small_share, token_budget
        self._window, self._hold, self._batch_share = traffic.lead_windows, 0, 0.0
        self._size = rng.uniform(*MARGINS) * rng.uniform(0.85, 1.15, len(task.pools))

    def __call__(self, observation: Observation) -> FleetDecision:
        task, rng = self._task, self._rng
        if self._hold <= 0:
            self._hold = int(rng.integers(4, 40))
            self._batch_share = float(rng.choice([0.0, 0.15, 0.5, 1.0])) if task.batch is not None else 0.0
            if self._small_share is not None:
                low, high = (0.55, 1.0) if rng.random() < self._small_share else (0.95, 1.8)
                self._size = rng.uniform(low, high) * rng.uniform(0.85, 1.15, len(task.pools))
        self._hold -= 1
        window, self._window = self._window, self._window + 1
        keeps = self._small_share is None
        load = self._loads[window - HELD : window + 1].max() if keeps else self._loads[window]
        serving = tuple(
            int(np.clip(round(pool.usual_replicas * load * each), max(pool.min_replicas, 1), pool.max_replicas))
            for pool, each in zip(task.pools, self._size, strict=True)
        )
        return FleetDecision(serving, (0,) * len(serving), self._batch_share, self._token_budget)


def _play(task: FleetTask, traffic: Traffic, leader: Leader) -> list[list[float]]:
    episode = FleetEpisode(task, traffic)
    observation = episode.reset()
    rows = []
    for _ in range(task.steps):
        before, waiting, decision = observation, observation.batch_backlog, leader(observation)
        observation, _, _, info = episode.step(decision)
        outcome = info["outcome"]
        up = [(a.up + b.up) / 2 for a, b in zip(before.pools, observation.pools, strict=True)]
        most = decision.batch_share * task.batch.max_admission_rps * task.window_s if task.batch is not None else 0.0
        by_role = [_of_role(task, outcome, role, name) for role in ROLES for name in BY_ROLE]
        rows.append([*(float(getattr(outcome, name)) for name in FIGURES), *by_role, *up, min(most, waiting)])
    return rows


def _of_role(task: FleetTask, outcome: WindowOutcome, role: str, name: str) -> float:
    """A metric of the prefilling replicas, or of those that decode: their sum, and of the KV use the mean."""
    own = [
        pool
        for spec, pool in zip(task.pools, outcome.pools, strict=True)
        if (spec.role == "prefill") == (role == "prefill")
    ]
    if name != "kv_use":
        return sum(float(getattr(pool, name)) for pool in own)
    return sum(pool.kv_use * pool.up for pool in own) / max(sum(pool.up for pool in own), 1.0)
