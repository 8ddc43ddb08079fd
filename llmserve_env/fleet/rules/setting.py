"""A rule's settings: their defaults as documented, and the ranges in which they are tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError

Kind = Literal["real", "log", "whole", "choice"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One number of a rule."""

    default: float
    low: float
    high: float
    kind: Kind = "real"

    def value(self, unit: Array) -> Array:
        """Values at these places of the range, 0 to 1."""
        if self.kind == "log":
            return np.asarray(self.low * (self.high / self.low) ** unit)
        if self.kind == "real":
            return np.asarray(self.low + (self.high - self.low) * unit)
        return np.asarray(np.minimum(np.floor(self.low + (self.high - self.low + 1.0) * unit), self.high))

    def unit(self, value: float) -> float:
        """Where a value lies in the range; whole numbers lie in the middle of their part."""
        if self.kind == "log":
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        if self.kind == "real":
            return (value - self.low) / (self.high - self.low)
        return (value - self.low + 0.5) / (self.high - self.low + 1.0)


def filled(settings: Mapping[str, Setting], given: Mapping[str, float]) -> dict[str, float]:
    """The defaults, with those that are given instead; an unknown name or a value out of range is an error."""
    values = {name: setting.default for name, setting in settings.items()}
    for name, value in given.items():
        if name not in settings:
            raise ConfigError(f"there is no setting {name!r}; known: {', '.join(settings)}")
        low, high = settings[name].low, settings[name].high
        if not low <= value <= high:
            raise ConfigError(f"setting {name} must be in {low:g}..{high:g}; got {value:g}")
        values[name] = float(value)
    return values


def stacked(settings: Mapping[str, Setting], rows: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    """One column vector per setting, an element per row; a rule plays all rows side by side."""
    complete = [filled(settings, row) for row in rows]
    return {name: np.array([row[name] for row in complete])[:, None] for name in settings}
