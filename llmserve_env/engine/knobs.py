"""The six serving knobs an agent may turn at every window boundary, and the table their ranges come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.errors import InvalidActionError

MAX_SHOWN = 80
"""Characters of a refused value that a message repeats."""


@dataclass(frozen=True, slots=True)
class ServingKnobs:
    """Defaults are those of a freshly started engine."""

    batch_cap: int = 32
    kv_budget_fraction: float = 1.0
    speculation_depth: int = 0
    quantization_tier: int = 0
    prefill_decode_split: bool = False
    priority_routing: bool = False


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
        """The range in words."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "tier":
            return f"{', '.join(TIER_NAMES)} (or 0, 1, 2)"
        return f"{'a whole number' if self.kind == 'int' else 'a number'} from {self.low:g} to {self.high:g}"

    def number(self, value: object) -> float:
        """The knob's value as a number; InvalidActionError with the field and its range for any other value."""
        if self.kind == "tier" and isinstance(value, str):
            if value.upper() in TIER_NAMES:
                return float(TIER_NAMES.index(value.upper()))
        elif self.kind == "bool":
            if isinstance(value, bool | np.bool_) or (isinstance(value, int | float | np.integer) and value in (0, 1)):
                return float(value)
        elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            # Compared before the conversion, which an integer of a thousand digits would not survive.
            is_in_range = self.low <= value <= self.high
            if is_in_range and (self.kind == "float" or value == int(value)):
                return float(value)
        raise self._refusal(value)

    def _refusal(self, value: object) -> InvalidActionError:
        # Python refuses to print integers of thousands of digits.
        is_long = isinstance(value, int) and value.bit_length() > MAX_SHOWN
        shown = "a far larger integer" if is_long else repr(value)
        shown = shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "..."
        return InvalidActionError(f"{self.name} must be {self.allowed}; got {shown}")


KNOBS = (
    Knob(
        "batch_cap",
        "int",
        1,
        512,
        "batch_size",
        (8, 16, 32, 64, 96, 128, 192, 256, 512),
        "running requests allowed per replica",
    ),
    Knob(
        "kv_budget_fraction",
        "float",
        0.1,
        1.0,
        "kv_budget",
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0),
        "share of free GPU memory given to the KV pool",
    ),
    Knob(
        "speculation_depth",
        "int",
        0,
        8,
        "spec_length",
        (0, 1, 2, 4, 8),
        "draft tokens proposed per sequence and iteration",
    ),
    Knob(
        "quantization_tier",
        "tier",
        0,
        2,
        "quant_tier",
        (0, 1, 2),
        "precision of the weights; a change reloads replicas one by one",
    ),
    Knob("prefill_decode_split", "bool", 0, 1, "prefill_disagg", (0, 1), "dedicated prefill replicas in service"),
    Knob(
        "priority_routing",
        "bool",
        0,
        1,
        None,
        (0, 1),
        "urgent classes first, instead of first come first served",
    ),
)
"""The action as data: wire types, Gymnasium spaces and documents are made from this table."""
NAMES = tuple(knob.name for knob in KNOBS)
ALIASES = {knob.alias: knob.name for knob in KNOBS if knob.alias}
KNOBS_DTYPE = np.dtype([(name, "f8") for name in NAMES])
"""A row of the knob matrix as a record."""


def named(values: Array) -> Array:
    """The memory of a knob matrix (or of one row of it) as records with a field per knob."""
    view: Array = values.view(KNOBS_DTYPE)[..., 0]
    return view


def default_knobs() -> Array:
    """Values of a freshly started engine, in the order of the action."""
    knobs = ServingKnobs()
    return np.array([float(getattr(knobs, name)) for name in NAMES])


def knobs_from_mapping(action: Mapping[str, Any]) -> Array:
    """Knob values in order, from wire names or aliases; fields left out take their defaults."""
    given: dict[str, Any] = {}
    for key, value in action.items():
        name = ALIASES.get(key, key)
        if name not in NAMES:
            raise InvalidActionError(
                f"unknown field {key!r}; allowed: {', '.join(NAMES)} (aliases: {', '.join(ALIASES)})"
            )
        if name in given:
            raise InvalidActionError(f"{name} is given twice, once as {key!r}; give it once")
        given[name] = value
    defaults = ServingKnobs()
    return np.array([knob.number(given.get(knob.name, getattr(defaults, knob.name))) for knob in KNOBS])


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
