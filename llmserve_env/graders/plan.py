"""The scores of the plan that this project began with, beside the package's own: one formula for each core task.

1. throughput between the defaults and the best control known;
2. half the median wait for the first token against 300 ms, half the peak memory against 36 GB;
3. 0.40 throughput, 0.30 SLO compliance, 0.20 cost against a budget of 5 units, 0.10 stability of batch and KV budget.

`llmserve task calibrate` measures the constants and keeps them in the task's references. A window that was not played
counts as one in which nothing was served. docs/metrics.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.engine.knobs import KNOB, named
from llmserve_env.env.episode import PlayedEpisode
from llmserve_env.errors import ReferencesNotFoundError
from llmserve_env.graders.references import references_of
from llmserve_env.tasks.task import Task

TTFT_LIMIT_MS = 300.0
MEMORY_LIMIT_GB = 36.0
MEMORY_SPAN_GB = 10.0
"""Peak memory above the limit at which its half of the score is gone."""
COST_BUDGET = 5.0
"""Budget of an episode, in the plan's normalised units: the defaults spend this many."""
Constants = Mapping[str, float]
Parts = dict[str, tuple[float, float]]
"""Component -> weight and value in [0, 1]."""


@dataclass(frozen=True, slots=True)
class PlanGrade:
    """The plan's score and where it comes from."""

    score: float
    breakdown: dict[str, float]
    """Per component a value in [0, 1], before its weight."""
    feedback: str


def plan_constants(task: Task) -> Mapping[str, Any] | None:
    """The constants of a task; None for a task that the plan does not have or that is not calibrated."""
    try:
        constants: Mapping[str, Any] | None = references_of(task).get("plan")
    except ReferencesNotFoundError:
        return None
    return constants


def default_range(task: Task) -> tuple[float, float]:
    """The calibrated range of the default action's score by the plan's formula."""
    constants = plan_constants(task)
    if constants is None:
        raise ReferencesNotFoundError(f"{task.id} is not calibrated; run: llmserve task calibrate {task.id}")
    low, high = constants["default_range"]
    return low, high


def plan_grade(episode: PlayedEpisode) -> PlanGrade | None:
    """The plan's grade of an episode; None where `plan_constants` finds no constants."""
    constants = plan_constants(episode.task)
    return None if constants is None else plan_grade_with(episode, constants)


def plan_grade_with(episode: PlayedEpisode, constants: Constants) -> PlanGrade:
    """The plan's grade by the formula of the task's number."""
    formula = FORMULAS[episode.task.number]
    if episode.step_count == 0:
        parts = dict.fromkeys(formula(episode, constants), 0.0)
        return PlanGrade(0.0, parts, "The log is empty: nothing was served, so the score is 0.")
    found = formula(episode, constants)
    score = sum(weight * value for weight, value in found.values())
    breakdown = {name: value for name, (_, value) in found.items()}
    return PlanGrade(min(max(score, 0.0), 1.0), breakdown, _in_words(found))


def mean_tps(episode: PlayedEpisode) -> float:
    """Output tokens per second over the whole episode."""
    return float(episode.trajectory.metrics["throughput_tps"][: episode.step_count].sum()) / episode.task.steps


def cost_usd(episode: PlayedEpisode) -> float:
    """The bill of the windows played."""
    return episode.trajectory.totals()["cost_usd"]


def _throughput_gain(episode: PlayedEpisode, constants: Constants) -> Parts:
    low, high = constants["baseline_tps"], constants["optimal_tps"]
    return {"throughput": (1.0, _clip((mean_tps(episode) - low) / (high - low)))}


def _latency_and_memory(episode: PlayedEpisode, _constants: Constants) -> Parts:
    n, steps = episode.step_count, episode.task.steps
    played = episode.trajectory.metrics[:n]
    # A window that was not played counts as one in which first tokens came after the limit.
    mean_ttft_ms = (float(played["ttft_p50_ms"].sum()) + (steps - n) * TTFT_LIMIT_MS) / steps
    peak_gb = float(played["peak_memory_gb"].max(initial=0.0))
    return {
        "ttft": (0.5, _clip(1.0 - mean_ttft_ms / TTFT_LIMIT_MS)),
        "memory": (0.5, n / steps * _clip(1.0 - (peak_gb - MEMORY_LIMIT_GB) / MEMORY_SPAN_GB)),
    }


def _balanced(episode: PlayedEpisode, constants: Constants) -> Parts:
    n, steps = episode.step_count, episode.task.steps
    window, share = episode.trajectory.window[:n], n / steps
    judged, met = float(window["judged_by_class"].sum()), float(window["met_by_class_tier"].sum())
    cost = COST_BUDGET * cost_usd(episode) / constants["baseline_cost_usd"]
    return {
        "throughput": (0.40, _clip(mean_tps(episode) / constants["optimal_tps"])),
        "slo_compliance": (0.30, share * (met / judged if judged else 1.0)),
        "cost": (0.20, share * _clip(1.0 - cost / COST_BUDGET)),
        "stability": (0.10, share * _stability(episode)),
    }


def _stability(episode: PlayedEpisode) -> float:
    """One minus the variance of the changes per step of batch cap and KV budget, each over its range."""
    chosen = named(episode.trajectory.knobs[: episode.step_count])
    if len(chosen) < 2:
        return 1.0
    knobs = (KNOB["batch_cap"], KNOB["kv_budget_fraction"])
    return _clip(1.0 - sum(float(np.var(np.diff(chosen[k.name]) / (k.high - k.low))) for k in knobs))


FORMULAS: dict[int, Callable[[PlayedEpisode, Constants], Parts]] = {
    1: _throughput_gain,
    2: _latency_and_memory,
    3: _balanced,
}
"""Number of a core task -> its formula."""


def _clip(value: float) -> float:
    return min(max(value, 0.0), 1.0)


def _in_words(parts: Parts) -> str:
    shown = [f"{name} {value:.2f} of 1 (weight {weight:.2f})" for name, (weight, value) in parts.items()]
    weakest = min(parts, key=lambda name: parts[name][1])
    return f"By the plan's formula: {', '.join(shown)}; the most is to be gained in {weakest}."
