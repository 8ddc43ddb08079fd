"""The action as data: one table of knobs that wire types, Gymnasium spaces and documents are made from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.errors import InvalidActionError

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob: its wire name, its range, and the name the original plan gave it."""

    name: str
    kind: str
    low: float
    high: float
    alias: str | None
    levels: tuple[float, ...]
    """Values offered by the discrete action space."""
    meaning: str

    @property
    def allowed(self) -> str:
        if self.kind == "bool":
            return "true or false"
        if self.kind == "tier":
            return f"{', '.join(TIER_NAMES)} (or 0, 1, 2)"
        return f"{'a whole number' if self.kind == 'int' else 'a number'} from {self.low:g} to {self.high:g}"


KNOBS = (
    Knob("batch_cap", "int", 1, 512, "batch_size", (8, 16, 32, 64, 96, 128, 192, 256, 512), "running requests allowed per replica"),
    Knob("kv_budget_fraction", "float", 0.1, 1.0, "kv_budget", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0), "share of free GPU memory given to the KV pool"),
    Knob("speculation_depth", "int", 0, 8, "spec_length", (0, 1, 2, 4, 8), "draft tokens proposed per sequence and iteration"),
    Knob("quantization_tier", "tier", 0, 2, "quant_tier", (0, 1, 2), "precision of the weights; a change reloads replicas one by one"),
    Knob("prefill_decode_split", "bool", 0, 1, "prefill_disagg", (0, 1), "dedicated prefill replicas in service"),
    Knob("priority_routing", "bool", 0, 1, None, (0, 1), "urgent classes first, instead of first come first served"),
)
NAMES = tuple(knob.name for knob in KNOBS)
ALIASES = {knob.alias: knob.name for knob in KNOBS if knob.alias}


def _value(knob: Knob, value: Any) -> float:
    if knob.kind == "tier" and isinstance(value, str):
        if value.upper() in TIER_NAMES:
            return float(TIER_NAMES.index(value.upper()))
    elif knob.kind == "bool":
        if isinstance(value, bool | np.bool_) or value in (0, 1):
            return float(value)
    elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and knob.low <= number <= knob.high and (knob.kind == "float" or number.is_integer()):
            return number
    raise InvalidActionError(f"{knob.name} must be {knob.allowed}; got {value!r}")


def knobs_from_mapping(action: Mapping[str, Any]) -> Array:
    """Knob values in order, from wire names or the plan's aliases; fields left out take their defaults."""
    named: dict[str, Any] = {}
    for key, value in action.items():
        name = ALIASES.get(key, key)
        if name not in NAMES:
            raise InvalidActionError(f"unknown field {key!r}; allowed: {', '.join(NAMES)} (aliases: {', '.join(ALIASES)})")
        if name in named:
            raise InvalidActionError(f"{name} is given twice, once as {key!r}; give it once")
        named[name] = value
    defaults = ServingKnobs()
    return np.array([_value(knob, named.get(knob.name, getattr(defaults, knob.name))) for knob in KNOBS])


def mapping_from_knobs(values: Array) -> dict[str, Any]:
    """Wire form of knob values."""
    return {
        "batch_cap": int(values[0]),
        "kv_budget_fraction": float(values[1]),
        "speculation_depth": int(values[2]),
        "quantization_tier": TIER_NAMES[int(values[3])],
        "prefill_decode_split": bool(values[4]),
        "priority_routing": bool(values[5]),
    }
