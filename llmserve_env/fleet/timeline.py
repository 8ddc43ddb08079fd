"""What happened in one episode, window by window, for people to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.episode import FleetEpisode, Progress
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.task import FleetTask
from llmserve_env.fleet.traffic import Traffic

Decide = Callable[[Observation], FleetDecision]
STATES = ("up", "draining", "waking", "booting", "asleep")
FIGURES = (
    "judged",
    "met",
    "attainment_so_far",
    "income_usd",
    "batch_usd",
    "bill_usd",
    "credits_usd",
    "queue",
    "running",
    "kv_use",
    "batch_backlog",
    "batch_share",
    "gpu_hours",
)


@dataclass(frozen=True, slots=True)
class FleetTimeline:
    """One played episode. Arrays have an entry per step; dollars and GPU-hours are totals up to its end."""

    task: FleetTask
    traffic: Traffic
    replicas: Array
    """[step, pool, state in the order of `STATES`]."""
    ordered: Array
    """[step, pool]: replicas that were ordered to serve."""
    figures: dict[str, Array]
    """By the names of `FIGURES`."""

    @property
    def hours(self) -> Array:
        """End of each step, since the start of the episode."""
        hours: Array = (np.arange(self.task.steps) + 1) * self.task.window_s / 3_600.0
        return hours

    def offered(self, name: str) -> Array:
        """An array per window of the traffic, without its lead."""
        values: Array = getattr(self.traffic, name)[self.traffic.lead_windows :]
        return values

    @property
    def net_usd(self) -> Array:
        """Income less bill less credits, so far."""
        figures = self.figures
        net: Array = figures["income_usd"] - figures["bill_usd"] - figures["credits_usd"]
        return net


def play_timeline(task: FleetTask, traffic: Traffic, decide: Decide) -> FleetTimeline:
    """Play an episode on the engine and keep what happened."""
    episode = FleetEpisode(task, traffic)
    seen, is_over = episode.reset(), False
    replicas, ordered, rows = [], [], []
    while not is_over:
        seen, _, is_over, _ = episode.step(decide(seen))
        now = episode.progress
        replicas.append([[getattr(pool, state) for state in STATES] for pool in now.last.pools])
        ordered.append(now.decision.serving)
        rows.append(_figures(now))
    columns = np.array(rows, np.float64).T
    return FleetTimeline(task, traffic, np.array(replicas), np.array(ordered), dict(zip(FIGURES, columns, strict=True)))


def _figures(now: Progress) -> tuple[float, ...]:
    last, account = now.last, now.account
    return (
        last.judged,
        last.met,
        account.attainment,
        account.income_usd,
        account.batch_usd,
        account.bill_usd,
        account.credits_usd,
        last.queue,
        last.running,
        last.kv_use,
        last.batch_backlog,
        now.decision.batch_share,
        now.gpu_hours,
    )
