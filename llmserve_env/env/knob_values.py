"""Actions as arrays: knob values in the order of the table, from and to wire names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import ALIASES, KNOBS, NAMES, Knob, ServingKnobs
from llmserve_env.errors import InvalidActionError

__all__ = ["ALIASES", "KNOBS", "NAMES", "Knob", "knobs_from_mapping", "mapping_from_knobs"]


def knobs_from_mapping(action: Mapping[str, Any]) -> Array:
    """Knob values in order, from wire names or aliases; fields left out take their defaults."""
    named: dict[str, Any] = {}
    for key, value in action.items():
        name = ALIASES.get(key, key)
        if name not in NAMES:
            raise InvalidActionError(
                f"unknown field {key!r}; allowed: {', '.join(NAMES)} (aliases: {', '.join(ALIASES)})"
            )
        if name in named:
            raise InvalidActionError(f"{name} is given twice, once as {key!r}; give it once")
        named[name] = value
    defaults = ServingKnobs()
    return np.array([knob.number(named.get(knob.name, getattr(defaults, knob.name))) for knob in KNOBS])


def mapping_from_knobs(values: Sequence[float] | Array) -> dict[str, Any]:
    """Wire form of knob values."""
    return {
        "batch_cap": int(values[0]),
        "kv_budget_fraction": float(values[1]),
        "speculation_depth": int(values[2]),
        "quantization_tier": TIER_NAMES[int(values[3])],
        "prefill_decode_split": bool(values[4]),
        "priority_routing": bool(values[5]),
    }
