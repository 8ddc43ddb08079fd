"""What a pilot may do: the bounds file, and how a wish becomes a permitted configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from llmserve_env.engine.knobs import KNOB
from llmserve_env.errors import ConfigError

MAX_FILE_BYTES = 100_000


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KnobBounds(_Section):
    """Range of one knob, how far it may move at once, and how long it must then stay."""

    low: float
    high: float
    max_factor: float | None = Field(default=None, gt=1.0)
    """Largest ratio between two windows, for knobs whose size is what counts."""
    max_step: float | None = Field(default=None, gt=0.0)
    """Largest difference between two windows."""
    dwell_windows: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _is_a_range(self) -> KnobBounds:
        if self.low > self.high:
            raise ValueError(f"low must not exceed high; got {self.low:g} > {self.high:g}")
        return self

    def towards(self, wanted: float, current: float) -> float:
        """The value nearest to the wanted one that the range and the largest change allow."""
        low, high = self.low, self.high
        if self.max_factor is not None:
            low, high = max(low, current / self.max_factor), min(high, current * self.max_factor)
        if self.max_step is not None:
            low, high = max(low, current - self.max_step), min(high, current + self.max_step)
        # A configuration outside the bounds comes back into them, however far that is.
        return min(max(wanted, low, self.low), max(high, self.low), self.high)


class ReplicaBounds(_Section):
    """The fleet that the pilot recommends; whoever scales it reads the recommendation from the metrics."""

    low: int = Field(default=1, ge=1)
    high: int = Field(default=1, ge=1)
    target_busy_share: float = Field(default=0.7, gt=0.0, le=1.0)
    queue_per_replica: float = Field(default=8.0, gt=0.0)
    """Waiting requests per replica that call for one more."""

    def load(self, current: int, busy_share: float, queue_depth: float) -> float:
        """Replicas' worth of load, in fractions: 1 where one replica at its target would carry it."""
        return current * busy_share / self.target_busy_share + queue_depth / self.queue_per_replica

    def desired(self, load: float) -> int:
        """Whole replicas that carry this load, within the bounds."""
        return min(max(math.ceil(load - 1e-9), self.low), self.high)


class Bounds(_Section):
    """The bounds file."""

    window_s: float = Field(default=5.0, gt=0.0)
    stale_after_s: float = Field(default=30.0, gt=0.0)
    """Metrics that have not been read for longer than this cannot be acted on."""
    knobs: Mapping[str, KnobBounds] = Field(default_factory=dict)
    """Knobs that may be changed; the pilot leaves all others alone."""
    replicas: ReplicaBounds = ReplicaBounds()

    @model_validator(mode="after")
    def _are_running_knobs(self) -> Bounds:
        for name, bounds in self.knobs.items():
            known = [knob.name for knob in KNOB.values() if knob.live == "running"]
            if name not in known:
                raise ValueError(f"knobs.{name}: a running engine takes only {', '.join(known)}")
            knob = KNOB[name]
            if bounds.low < knob.low or bounds.high > knob.high:
                raise ValueError(f"knobs.{name}: {bounds.low:g}..{bounds.high:g} exceeds {knob.allowed}")
        return self

    def limit(
        self, wanted: Mapping[str, Any], current: Mapping[str, Any], unchanged_for: Mapping[str, int]
    ) -> tuple[dict[str, Any], list[str]]:
        """(the permitted configuration, why it differs from the wish).

        `unchanged_for` counts the windows since each knob last changed.
        """
        permitted, reasons = dict(current), []
        for name, value in wanted.items():
            if name not in current or value == current[name]:
                continue
            bounds = self.knobs.get(name)
            if bounds is None:
                reasons.append(f"{name}: not in the bounds file")
            elif unchanged_for.get(name, bounds.dwell_windows) < bounds.dwell_windows:
                reasons.append(f"{name}: stays {bounds.dwell_windows} windows after a change")
            else:
                near = bounds.towards(float(value), float(current[name]))
                permitted[name] = KNOB[name].wire(round(near) if KNOB[name].kind == "int" else near)
                if permitted[name] != value:
                    reasons.append(f"{name}: {value} is bounded to {permitted[name]}")
        return permitted, reasons


def read_bounds(path: Path) -> Bounds:
    """The bounds of a YAML file; ConfigError names the file, the field and what is allowed."""
    try:
        text = path.read_text(encoding="utf-8")
        if len(text) > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has {len(text)} characters; a bounds file has at most {MAX_FILE_BYTES}")
        return Bounds.model_validate(yaml.safe_load(text) or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as a bounds file: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {where}: {first['msg']}") from error
