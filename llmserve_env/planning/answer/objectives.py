"""What a fleet must keep: the SLOs of every class as objectives, and whether episodes keep them, with confidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.statistics import ratio_interval
from llmserve_env.request_outcomes import LATENCIES, LatencyName, RequestOutcomes
from llmserve_env.tasks.task import Task
from llmserve_env.workloads import describe
from llmserve_env.workloads.spec import parse_percentile

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end-to-end"}


@dataclass(frozen=True, slots=True)
class Objective:
    """One promise to one class: a share of its requests within a limit, or their mean."""

    class_name: str
    class_index: int
    latency: LatencyName
    limit_ms: float
    share: float | None
    """Share of requests that must be within the limit; None where their mean must be."""
    is_percentile: bool = False
    """Whether the contract says it as a percentile; p99 and 99 % of requests are the same promise."""

    @property
    def text(self) -> str:
        """The promise in words."""
        what, limit = NAMES[self.latency], f"{self.limit_ms:,g} ms"
        if self.share is None:
            return f"{self.class_name}: mean {what} up to {limit}"
        if self.is_percentile:
            return f"{self.class_name}: {what} p{100 * self.share:g} up to {limit}"
        return f"{self.class_name}: {what} within {limit} for {100 * self.share:g} % of requests"

    def tally(self, outcomes: RequestOutcomes) -> tuple[float, float]:
        """(what counts for the promise, requests that count) of one episode."""
        values = outcomes.decided_ms(self.latency, self.limit_ms)
        mine = (outcomes.class_index == self.class_index) & ~np.isnan(values)
        if self.share is None:
            return float(values[mine].sum()), float(np.count_nonzero(mine))
        return float(np.count_nonzero(values[mine] <= self.limit_ms)), float(np.count_nonzero(mine))


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an objective came out over episodes."""

    value: float
    """The share within the limit, or the mean in milliseconds."""
    low: float
    high: float
    """One-sided bounds of the value."""
    is_kept: bool
    """Whether the value keeps the promise."""
    is_sure: bool
    """Whether the bound keeps it, too."""
    margin: float
    """How far the bound is on the right side, relative to the room there is; negative on the wrong side."""


def objectives_of(task: Task, target: float) -> tuple[Objective, ...]:
    """The promises of a task; `target` is the share for limits that name none."""
    shares = describe(task.workload).class_shares
    found: list[Objective] = []
    for index, service in enumerate(task.workload.classes):
        for latency in LATENCIES:
            limit_ms = getattr(service, f"{latency}_slo_ms")
            if limit_ms is not None:
                found.append(Objective(service.name, index, latency, limit_ms, service.slo_share or target))
        for name, limit_ms in service.slo_percentiles:
            latency, percentile = cast(tuple[LatencyName, float | None], parse_percentile(name))
            share = None if percentile is None else percentile / 100.0
            found.append(Objective(service.name, index, latency, limit_ms, share, is_percentile=True))
        if shares[service.name] == 0.0 and any(one.class_index == index for one in found):
            raise ConfigError(
                f"workload.classes[{index}]: class {service.name!r} promises an SLO but no request belongs to it; "
                "remove the class, or give it a kind of request"
            )
    if not found:
        raise ConfigError(
            f"{task.id} promises nothing: give a class ttft_slo_ms, tpot_slo_ms, e2e_slo_ms or slo_percentiles"
        )
    return tuple(found)


def is_hopeless(objectives: Sequence[Objective], counted: Array, played_share: float) -> bool:
    """Whether an objective is lost even if all requests of the seeds still to be played are served at once.

    `counted` has shape (episodes played, objectives, 2), and `played_share` of all seeds are among them.
    """
    for one, (above, below) in zip(objectives, counted.sum(axis=0).tolist(), strict=True):
        value = above / below if below else 0.0
        if one.share is None and below and played_share * value > one.limit_ms:
            return True
        if one.share is not None and below and played_share * value + 1.0 - played_share < one.share:
            return True
    return False


def tallies(objectives: Sequence[Objective], outcomes: RequestOutcomes) -> Array:
    """What one episode contributes to every objective, shape (objectives, 2)."""
    return np.array([objective.tally(outcomes) for objective in objectives])


def judge(objective: Objective, counted: Array, confidence: float) -> Verdict:
    """The verdict over episodes, from tallies of shape (episodes, 2)."""
    total = counted[:, 1].sum()
    if not total:
        return Verdict(float("nan"), float("nan"), float("nan"), True, True, 1.0)
    value = float(counted[:, 0].sum() / total)
    low, high = ratio_interval(counted[:, 0].tolist(), counted[:, 1].tolist(), confidence)
    if objective.share is None:
        limit = objective.limit_ms
        return Verdict(value, low, high, value <= limit, high <= limit, 1.0 - high / limit)
    low, high, room = max(low, 0.0), min(high, 1.0), max(1.0 - objective.share, 1e-3)
    return Verdict(value, low, high, value >= objective.share, low >= objective.share, (low - objective.share) / room)


def verdicts(objectives: Sequence[Objective], counted: Array, confidence: float) -> tuple[Verdict, ...]:
    """The verdict on every objective, from tallies of shape (episodes, objectives, 2)."""
    return tuple(judge(one, counted[:, i], confidence) for i, one in enumerate(objectives))
