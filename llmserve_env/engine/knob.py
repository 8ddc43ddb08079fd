"""One row of the table of knobs: a knob's range, names, encoding and the way a live engine takes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.tiers import TIER_NAMES, TIER_NUMBERS, tier_name
from llmserve_env.errors import InvalidActionError

MAX_SHOWN = 80
"""Characters of a rejected value that an error message repeats."""
Kind = Literal["int", "float", "bool", "tier"]
Scale = Literal["linear", "log"]
Live = Literal["running", "restart", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One row of the table."""

    name: str
    """Name on the wire, in task files and of the engine's field."""
    column: int
    """Position in the knob matrix."""
    kind: Kind
    default: float | None
    """Value of a freshly started engine; None where the deployment decides it (`limit_field`)."""
    low: float
    high: float
    levels: tuple[float, ...]
    """Values that the discrete action space offers."""
    meaning: str
    short: str
    """Name in the headings of reports."""
    alias: str | None = None
    """Second name that the wire accepts."""
    scale: Scale = "linear"
    """How searches, box actions and features spread the range."""
    feature: str
    """Name in the observation vector."""
    usual_high: float | None = None
    """End of the range that features and scores are scaled by; None for `high`."""
    is_costly: bool = False
    """Whether a change takes replicas out of service. The observation shows how long such a knob must still dwell."""
    live: Live = "running"
    """Whether a vLLM server takes a new value while it runs, after a restart, or never."""
    flag: str | None = None
    """The flag of `vllm serve` that sets it at launch."""
    is_optional: bool = False
    """Offered only by tasks that activate it, so that the actions of other tasks keep their width."""
    limit_field: str | None = None
    """Field of `Deployment` that no value may exceed."""
    needs: str | None = None
    """Field of a task's `deployment` section without which the knob has nothing to act on."""
    is_drafting: bool = False
    """Whether it needs a draft model; it stays at its lowest value where the profile has none."""
    wire: Callable[[float], Any] = field(init=False, repr=False, compare=False)
    """Gives a number its wire form: an integer, a float, a boolean, the name of a tier, or None for an open default."""

    def __post_init__(self) -> None:
        convert = _WIRE[self.kind]
        object.__setattr__(self, "wire", partial(_unless_open, convert) if self.default is None else convert)

    @property
    def allowed(self) -> str:
        """The range in words."""
        if self.kind == "bool":
            return "true or false"
        if self.kind == "tier":
            numbers = [int(level) for level in self.levels]
            return f"{', '.join(TIER_NAMES[n] for n in numbers)} (or {', '.join(map(str, numbers))})"
        return f"{'a whole number' if self.kind == 'int' else 'a number'} from {self.low:g} to {self.high:g}"

    def number(self, value: object) -> float:
        """The knob's value as a number; InvalidActionError names the field and its range for any other value."""
        if self.kind == "tier":
            found = TIER_NUMBERS.get(value.upper()) if isinstance(value, str) else value
            if not isinstance(found, bool) and isinstance(found, int | float | np.number) and found in self.levels:
                return float(found)
        elif self.kind == "bool":
            if isinstance(value, bool | np.bool_) or (isinstance(value, int | float | np.integer) and value in (0, 1)):
                return float(value)
        elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
            # Compared before the conversion, which fails for an integer of a thousand digits.
            is_in_range = self.low <= value <= self.high
            if is_in_range and (self.kind == "float" or value == int(value)):
                return float(value)
        raise self._refusal(value)

    @property
    def scale_high(self) -> float:
        """What features and scores take as the end of the range, on any deployment."""
        return self.high if self.usual_high is None else self.usual_high

    def on(self, deployment: Deployment) -> Knob:
        """The knob within the limits of a deployment."""
        if self.kind == "tier":
            tiers = tuple(float(number) for number in deployment.costs.tiers)
            return replace(self, low=min(tiers), high=max(tiers), levels=tiers, default=tiers[0])
        if self.is_drafting and deployment.costs.draft is None:
            return replace(self, high=self.low, levels=(self.low,))
        if self.limit_field is None:
            return self
        high = min(self.high, float(getattr(deployment, self.limit_field)))
        default = high if self.default is None else min(self.default, high)
        inside = tuple(level for level in self.levels if level <= high)
        levels = inside if self.high <= high else (*(level for level in inside if level < high), high)
        return replace(self, high=high, default=default, levels=levels)

    def allows(self, value: float) -> bool:
        """Whether a number of the knob matrix is within the limits of this knob."""
        return math.isnan(value) or (value in self.levels if self.kind == "tier" else value <= self.high)

    def _refusal(self, value: object) -> InvalidActionError:
        # Python refuses to print integers of thousands of digits.
        is_long = isinstance(value, int) and value.bit_length() > MAX_SHOWN
        shown = "a far larger integer" if is_long else repr(value)
        shown = shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "..."
        return InvalidActionError(f"{self.name} must be {self.allowed}; got {shown}")


def _unless_open(convert: Callable[[float], Any], value: float) -> Any:
    return None if np.isnan(value) else convert(value)


_WIRE: dict[Kind, Callable[[float], Any]] = {"int": int, "float": float, "bool": bool, "tier": tier_name}


def knob(default: Any, *, kind: Kind, **row: Any) -> Any:
    """A field of the table; `kind` fills in what all flags, or all tiers, have in common."""
    if kind in ("bool", "tier"):
        choices = range(2 if kind == "bool" else len(TIER_NAMES))
        row |= {"low": 0, "high": choices[-1], "levels": tuple(choices)}
    return field(default=default, metadata={"kind": kind, **row})


def table_of(table: type[Any]) -> tuple[Knob, ...]:
    """The rows of a dataclass of knobs."""
    rows = []
    for column, row in enumerate(fields(table)):
        said: dict[str, Any] = {"feature": row.name, **row.metadata}
        default: Any = row.default
        said["default"] = None if default is None else float(default)
        rows.append(Knob(name=row.name, column=column, **said))
    return tuple(rows)
