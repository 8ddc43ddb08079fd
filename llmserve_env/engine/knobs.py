"""The six serving knobs an agent may turn at every window boundary, and the table their ranges come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
