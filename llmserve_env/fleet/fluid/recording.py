"""Runs of the engine to fit the surrogate to, on the training half alone.

Most fleets follow their load with the same margin all the time, as a good policy's do; others are too large and too
small in turn, which shows what a shortage does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.series import RateSeries
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

FIRST_SEED = 700_000
SMOOTHED = 9
"""Windows over which the load is smoothed that the orders wander around."""
SMALL_SHARES = (0.3, None, None, 0.0, None, None)
"""How often fleets are too small, episode by episode; None for those that keep their margin."""
MARGINS = (0.9, 1.4)
HELD = 8
"""Windows for which a fleet that keeps its margin holds on to its replicas: each that leaves takes its caches along."""
BUDGET_EPISODES = 6
FIGURES = ("judged", "met", "ttft_ms", "tpot_ms", "queue", "running", "kv_use", "batch_usd", "output_tokens")


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


def best_token_budget(task: FleetTask, services: Sequence[RateSeries]) -> int:
    """The budget under which the engine keeps most promises, with the same orders on the same traffic."""
    kept = {}
    for budget in task.token_budgets:
        figures = record(task, services, BUDGET_EPISODES, lambda: None, budget).figures
        kept[budget] = sum(float(figures["met"][row].sum()) for row in _steady(BUDGET_EPISODES))
    return max(kept, key=lambda budget: kept[budget])


def _steady(episodes: int) -> list[int]:
    """The episodes whose fleets keep their margin."""
    return [row for row in range(episodes) if SMALL_SHARES[row % len(SMALL_SHARES)] is None]


def record(
    task: FleetTask, services: Sequence[RateSeries], episodes: int, finish: Callable[[], None], token_budget: int
) -> Recording:
    """Play episodes of the training half with orders that wander around what the load needs."""
    rng = np.random.default_rng(FIRST_SEED)
    traffics, rows = [], []
    for episode in range(episodes):
        series = services[episode % len(services)]
        starts = series.starts("train", task.length_s)
        traffic = task.traffic(series, starts[episode * 5 % len(starts)], FIRST_SEED + episode)
        traffics.append(traffic)
        small_share = SMALL_SHARES[episode % len(SMALL_SHARES)]
        rows.append(_play(task, traffic, rng, small_share, token_budget))
        finish()
    data = np.array(rows)
    num_pools = len(task.pools)
    figures = {name: data[:, :, column] for column, name in enumerate(FIGURES)}
    up, admitted = data[:, :, len(FIGURES) : len(FIGURES) + num_pools], data[:, :, -1]
    return Recording(Worlds.of(traffics), figures, up, admitted, token_budget)


def _play(
    task: FleetTask, traffic: Traffic, rng: np.random.Generator, small_share: float | None, token_budget: int
) -> list[list[float]]:
    loads = np.convolve(traffic.arrivals, np.full(SMOOTHED, 1.0 / SMOOTHED), "same")
    loads = loads / task.window_s / task.traffic_spec.mean_rps
    episode = FleetEpisode(task, traffic)
    observation = episode.reset()
    rows, hold, share, size = [], 0, 0.0, rng.uniform(*MARGINS) * rng.uniform(0.85, 1.15, len(task.pools))
    for step in range(task.steps):
        if hold <= 0:
            hold = int(rng.integers(4, 40))
            share = float(rng.choice([0.0, 0.15, 0.5, 1.0])) if task.batch is not None else 0.0
            if small_share is not None:
                low, high = (0.55, 1.0) if rng.random() < small_share else (0.95, 1.8)
                size = rng.uniform(low, high) * rng.uniform(0.85, 1.15, len(task.pools))
        hold -= 1
        window = traffic.lead_windows + step
        load = loads[window] if small_share is not None else loads[window - HELD : window + 1].max()
        serving = tuple(
            int(np.clip(round(pool.usual_replicas * load * each), max(pool.min_replicas, 1), pool.max_replicas))
            for pool, each in zip(task.pools, size, strict=True)
        )
        before, waiting = observation, observation.batch_backlog
        observation, _, _, info = episode.step(FleetDecision(serving, (0,) * len(serving), share, token_budget))
        outcome = info["outcome"]
        up = [(a.up + b.up) / 2 for a, b in zip(before.pools, observation.pools, strict=True)]
        most = share * task.batch.max_admission_rps * task.window_s if task.batch is not None else 0.0
        rows.append([*(float(getattr(outcome, name)) for name in FIGURES), *up, min(most, waiting)])
    return rows
