"""What planners try: a few sensible ways to serve the next windows, each a small policy rather than a constant.

A plan names the knobs of every window. Its KV budget may instead follow the pool's use, a margin above it: requests in
flight differ from plan to plan, so no number written down beforehand fits them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.tasks.task import KNOB_NAMES, Task

CAP, KV, DEPTH, TIER, SPLIT, PRIORITY = range(len(KNOB_NAMES))
DEPTHS = (1, 2, 4)
TIERS = (0, 1)
"""FP16 and INT8. INT4 prefills no faster than FP16 and is worth less, so no plan is spent on it."""
FIXED = np.nan
"""Margin of a plan whose KV budget is written down."""
KV_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans side by side."""

    knobs: Array
    """Shape (steps, plans, 6)."""
    margins: Array
    """KV budget above what is in use, shape (steps, plans); FIXED where `knobs` says the budget."""

    @property
    def num_plans(self) -> int:
        return int(self.knobs.shape[1])

    def at(self, step: int, used: Array) -> Array:
        """Knobs of one window, given the share of the whole KV memory that each plan has in use before it."""
        margins = self.margins[step]
        knobs: Array = self.knobs[step].copy()
        pool = np.round(np.clip(used + margins, KNOBS[KV].low, KNOBS[KV].high), KV_DECIMALS)
        knobs[:, KV] = np.where(np.isnan(margins), knobs[:, KV], pool)
        return knobs

    def repeated(self, times: int) -> Plans:
        """The same plans again, once per hypothesis about the traffic."""
        return Plans(np.tile(self.knobs, (1, times, 1)), np.tile(self.margins, (1, times)))


def candidate_plans(task: Task, here: Array, base: Array, margins: Sequence[float], num_steps: int) -> Plans:
    """Ways to begin, all of which go on alike: with the base, no drafts, and a pool that follows its use.

    Beginnings are the knobs in force, the base, and variations of the base. What is given up by a poor continuation
    is the same for all, so that the best beginning is seldom one that only pays if the plan were kept.
    """
    active = {k for k, name in enumerate(KNOB_NAMES) if name in task.knobs.active}
    plain = _with(base, {DEPTH: 0.0} if DEPTH in active else {})
    stay = _with(plain, {TIER: here[TIER]})
    found: list[tuple[Array, Array, float]] = [(here, stay, FIXED), (base, stay, FIXED)]
    turns = [(now, later) for now in TIERS for later in TIERS] if TIER in active else [(plain[TIER], plain[TIER])]
    for now, later in turns:
        found += [(_with(plain, {TIER: now}), _with(plain, {TIER: later}), margin) for margin in margins]
    for depth in DEPTHS if DEPTH in active else ():
        found += [(_with(stay, {DEPTH: depth}), stay, margin) for margin in margins]
    singles = [{k: 1.0 - stay[k]} for k in (SPLIT, PRIORITY) if k in active]
    singles += [{CAP: min(2.0 * stay[CAP], KNOBS[CAP].high)}]
    found += [(_with(stay, changes), stay, margins[0]) for changes in singles]
    return _written_out(found, margins[0], num_steps)


def _written_out(found: Sequence[tuple[Array, Array, float]], margin: float, num_steps: int) -> Plans:
    """Beginnings for the first half of the steps, continuations for the rest."""
    first, later, follows = zip(*found, strict=True)
    knobs = np.tile(np.array(first), (num_steps, 1, 1))
    begun = max(num_steps // 2, 1)
    knobs[begun:] = np.array(later)
    margins = np.tile(np.array(follows), (num_steps, 1))
    margins[begun:] = margin
    return Plans(knobs, margins)


def _with(knobs: Array, changes: dict[int, float]) -> Array:
    changed = knobs.copy()
    for k, value in changes.items():
        changed[k] = value
    return changed
