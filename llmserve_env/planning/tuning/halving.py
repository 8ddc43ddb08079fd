"""The best constant by successive halving: many configurations on few seeds, the better ones on more.

It needs only the default install and runs side by side; `search.py` is Optuna's sequential search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.evaluation.runner import Runner, Threads
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.planning.tuning.constants import Outcome, play_constants
from llmserve_env.tasks.task import Task

Value = Callable[[Outcome], float]

KEPT = 3
"""One in this many configurations reaches the next round."""
MAX_POLISHES = 4
KV_LEVELS = tuple(round(0.1 + 0.05 * i, 2) for i in range(19))
CAP_LEVELS = (8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration that was played, and on how many seeds."""

    knobs: Array
    outcome: Outcome
    num_seeds: int


@dataclass(frozen=True, slots=True)
class HalvingResult:
    """The winner, and everything that was tried on the way."""

    best: Trial
    trials: tuple[Trial, ...]


def levels_of(task: Task) -> list[tuple[float, ...]]:
    """Values each knob may take; a single one where the task does not let it move."""
    finer: dict[str, tuple[float, ...]] = {"batch_cap": CAP_LEVELS, "kv_budget_fraction": KV_LEVELS}
    moves = set(task.knobs.active)
    if len(task.workload.classes) == 1:
        # With one class, priorities cannot change the order of service.
        moves.discard("priority_routing")
    return [
        tuple(v for v in finer.get(knob.name, knob.levels) if v <= knob.high) if knob.name in moves else (default,)
        for knob, default in zip(task.knob_table, task.default_knobs.tolist(), strict=True)
    ]


def first_candidates(task: Task, count: int, rng: np.random.Generator) -> Array:
    """The defaults, then different random configurations, as many as there are up to `count`."""
    levels = levels_of(task)
    possible = int(np.prod([len(values) for values in levels]))
    rows = {tuple(task.default_knobs)}
    while len(rows) < min(count, possible):
        rows.add(tuple(float(values[int(rng.integers(len(values)))]) for values in levels))
    return np.array(sorted(rows))


def num_changed_knobs(task: Task, knobs: Array) -> int:
    """Number of knobs that differ from the defaults."""
    return int(np.count_nonzero(knobs != task.default_knobs))


def neighbours(task: Task, knobs: Array) -> Array:
    """Configurations one level away in one knob."""
    rows = []
    for k, values in enumerate(levels_of(task)):
        below = [v for v in values if v < knobs[k]][-1:]
        above = [v for v in values if v > knobs[k]][:1]
        rows += [np.concatenate((knobs[:k], [value], knobs[k + 1 :])) for value in (*below, *above)]
    return np.array(rows).reshape(-1, len(knobs))


def halve(
    task: Task,
    value: Value,
    *,
    num_configurations: int = 48,
    num_seeds: int = 6,
    seed: int = 0,
    runner: Runner | None = None,
    seeds: Sequence[int] = SEED_RANGES["tuning"],
) -> HalvingResult:
    """The configuration of highest `value`; the same arguments find the same one, on any runner."""
    runner = runner or Threads()
    candidates = first_candidates(task, num_configurations, np.random.default_rng(seed))
    trials: list[Trial] = []
    played = max(num_seeds // KEPT, 1)

    def run(rows: Array, on: int) -> list[Trial]:
        found = play_constants(task, rows, seeds[:on], runner)
        fresh = [Trial(row, outcome, on) for row, outcome in zip(rows, found, strict=True)]
        trials.extend(fresh)
        # Ties go to the configuration nearest to the defaults, so a knob that changes nothing keeps its default.
        return sorted(fresh, key=lambda trial: (-value(trial.outcome), num_changed_knobs(task, trial.knobs)))

    ranked = run(candidates, played)
    while played < num_seeds:
        played = min(played * KEPT, num_seeds)
        ranked = run(np.array([t.knobs for t in ranked[: max(len(ranked) // KEPT, 2)]]), played)
    best = ranked[0]
    seen = {tuple(trial.knobs) for trial in trials if trial.num_seeds == num_seeds}
    for _ in range(MAX_POLISHES):
        fresh = [row for row in neighbours(task, best.knobs) if tuple(row) not in seen]
        if not fresh:
            break
        seen |= {tuple(row) for row in fresh}
        challenger = run(np.array(fresh), num_seeds)[0]
        gain = value(challenger.outcome) - value(best.outcome)
        if gain < 0.0 or (
            gain == 0.0 and num_changed_knobs(task, challenger.knobs) >= num_changed_knobs(task, best.knobs)
        ):
            break
        best = challenger
    return HalvingResult(best, tuple(trials))
