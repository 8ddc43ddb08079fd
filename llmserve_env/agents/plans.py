"""What planners try: a few ways to serve the next windows, each a small policy rather than a constant.

A plan names the knobs of every window. Its KV budget may instead follow the pool's use, a margin above it: requests in
flight differ from plan to plan, so no fixed number fits them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import KNOB, named
from llmserve_env.engine.tiers import faster_tiers
from llmserve_env.tasks.task import Task

DEPTHS = (1, 2, 4)
SWITCHES = ("prefill_decode_split", "priority_routing")
FIXED = np.nan
"""Margin of a plan whose KV budget is fixed."""
KV_DECIMALS = 3


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans side by side."""

    knobs: Array
    """Shape (steps, plans, knobs)."""
    margins: Array
    """KV budget above what is in use, shape (steps, plans); FIXED where `knobs` says the budget."""

    @property
    def num_plans(self) -> int:
        return int(self.knobs.shape[1])

    def at(self, step: int, used: Array) -> Array:
        """Knobs of one window, given the share of the whole KV memory that each plan has in use before it."""
        margins, kv = self.margins[step], KNOB["kv_budget_fraction"]
        knobs: Array = self.knobs[step].copy()
        budget = named(knobs)[kv.name]
        pool = np.round(np.clip(used + margins, kv.low, kv.high), KV_DECIMALS)
        budget[:] = np.where(np.isnan(margins), budget, pool)
        return knobs

    def repeated(self, times: int) -> Plans:
        """The same plans again, once per hypothesis about the traffic."""
        return Plans(np.tile(self.knobs, (1, times, 1)), np.tile(self.margins, (1, times)))


def candidate_plans(task: Task, here: Array, base: Array, margins: Sequence[float], num_steps: int) -> Plans:
    """Plans that differ in their first half: the knobs in force, the base, and variations of the base.

    The second half is nearly the same in all of them: the base without drafts, with a KV pool that follows its use. A
    plan is replaced at the next window, so a beginning must not look good only because of what is planned after it.
    """
    active = set(task.knobs.active)
    plain = _with(base, speculation_depth=0.0) if "speculation_depth" in active else base
    stay = _with(plain, quantization_tier=named(here)["quantization_tier"])
    found: list[tuple[Array, Array, float]] = [(here, stay, FIXED), (base, stay, FIXED)]
    if "quantization_tier" in active:
        # A tier whose products are no faster prefills no faster and is worth less: no plan is spent on it.
        tiers = [_with(plain, quantization_tier=tier) for tier in faster_tiers(task.fleet.costs.tiers)]
        found += [(now, later, margin) for now in tiers for later in tiers for margin in margins]
    else:
        found += [(plain, plain, margin) for margin in margins]
    for depth in DEPTHS if "speculation_depth" in active else ():
        found += [(_with(stay, speculation_depth=depth), stay, margin) for margin in margins]
    singles = [{name: 1.0 - float(named(stay)[name])} for name in SWITCHES if name in active]
    cap = KNOB["batch_cap"]
    singles += [{cap.name: min(2.0 * float(named(stay)[cap.name]), cap.high)}]
    if "token_budget" in active:
        budget = task.knob_table[KNOB["token_budget"].column]
        singles += [{budget.name: level} for level in budget.levels if level != named(stay)[budget.name]]
    found += [(_with(stay, **changes), stay, margins[0]) for changes in singles]
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


def _with(knobs: Array, **changes: Any) -> Array:
    changed = knobs.copy()
    for name, value in changes.items():
        named(changed)[name] = value
    return changed
