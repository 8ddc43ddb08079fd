"""The serving knobs: one table, from which every other form of an action follows.

`ServingKnobs` is the table: a field per knob, with its range, names, encoding and the way a live engine takes it.
Inside the package the knobs of many episodes are a float64 matrix [episodes, knobs]; `named` shows the same memory as
records, so that code says `named(knobs)["batch_cap"]` and no column has a number. A value of NaN leaves a knob at its
default. At the edges an action is a mapping of wire names, or `models.ServeAction`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.engine.deployment import MAX_RUNNING, MAX_TOKEN_BUDGET, Deployment
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
    """Value of a freshly started engine; None where the deployment says it (`limit_field`)."""
    low: float
    high: float
    levels: tuple[float, ...]
    """Values that the discrete action space offers."""
    meaning: str
    short: str
    """What a heading in a report calls it."""
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
            return f"{', '.join(TIER_NAMES)} (or 0, 1, 2)"
        return f"{'a whole number' if self.kind == 'int' else 'a number'} from {self.low:g} to {self.high:g}"

    def number(self, value: object) -> float:
        """The knob's value as a number; InvalidActionError names the field and its range for any other value."""
        if self.kind == "tier" and isinstance(value, str):
            if value.upper() in TIER_NAMES:
                return float(TIER_NAMES.index(value.upper()))
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
        if self.limit_field is None:
            return self
        high = min(self.high, float(getattr(deployment, self.limit_field)))
        default = high if self.default is None else min(self.default, high)
        inside = tuple(level for level in self.levels if level <= high)
        levels = inside if self.high <= high else (*(level for level in inside if level < high), high)
        return replace(self, high=high, default=default, levels=levels)

    def _refusal(self, value: object) -> InvalidActionError:
        # Python does not print integers of thousands of digits.
        is_long = isinstance(value, int) and value.bit_length() > MAX_SHOWN
        shown = "a far larger integer" if is_long else repr(value)
        shown = shown if len(shown) <= MAX_SHOWN else shown[:MAX_SHOWN] + "..."
        return InvalidActionError(f"{self.name} must be {self.allowed}; got {shown}")


def _tier_name(value: float) -> str:
    return TIER_NAMES[int(value)]


def _unless_open(convert: Callable[[float], Any], value: float) -> Any:
    return None if np.isnan(value) else convert(value)


_WIRE: dict[Kind, Callable[[float], Any]] = {"int": int, "float": float, "bool": bool, "tier": _tier_name}


def knob(default: Any, *, kind: Kind, **row: Any) -> Any:
    """A field of the table; what a flag or a tier has in common with all others of its kind is filled in."""
    if kind in ("bool", "tier"):
        choices = range(2 if kind == "bool" else len(TIER_NAMES))
        row |= {"low": 0, "high": choices[-1], "levels": tuple(choices)}
    return field(default=default, metadata={"kind": kind, **row})


@dataclass(frozen=True, slots=True)
class ServingKnobs:
    """One configuration, and the table of knobs. Defaults are those of a freshly started engine."""

    batch_cap: int = knob(
        32,
        kind="int",
        low=1,
        high=MAX_RUNNING,
        levels=(8, 16, 32, 64, 96, 128, 192, 256, 512, 1024),
        alias="batch_size",
        meaning="maximum number of running requests per replica",
        short="batch cap",
        scale="log",
        flag="--max-num-seqs",
        limit_field="max_running",
        usual_high=512,
    )
    kv_budget_fraction: float = knob(
        1.0,
        kind="float",
        low=0.1,
        high=1.0,
        levels=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0),
        alias="kv_budget",
        meaning="share of free GPU memory given to the KV pool",
        short="KV budget",
        flag="--gpu-memory-utilization",
    )
    speculation_depth: int = knob(
        0,
        kind="int",
        low=0,
        high=8,
        levels=(0, 1, 2, 4, 8),
        alias="spec_length",
        meaning="draft tokens proposed per sequence and iteration",
        short="drafts",
        flag="--speculative-config",
    )
    quantization_tier: int = knob(
        0,
        kind="tier",
        alias="quant_tier",
        meaning="precision of the weights; a change reloads replicas one by one",
        short="tier",
        feature="tier",
        is_costly=True,
        live="restart",
        flag="--quantization",
    )
    prefill_decode_split: bool = knob(
        False,
        kind="bool",
        alias="prefill_disagg",
        meaning="use dedicated prefill replicas",
        short="split",
        feature="split_is_on",
        is_costly=True,
        live="restart",
        needs="prefill_replicas",
    )
    priority_routing: bool = knob(
        False,
        kind="bool",
        meaning="serve urgent classes first instead of in order of arrival",
        short="priority",
        flag="--scheduling-policy",
    )
    token_budget: int | None = knob(
        None,
        kind="int",
        low=1,
        high=MAX_TOKEN_BUDGET,
        levels=(256, 512, 1024, 2048, 4096, 8192, MAX_TOKEN_BUDGET),
        meaning="tokens that one iteration of a replica may compute",
        short="token budget",
        scale="log",
        flag="--max-num-batched-tokens",
        is_optional=True,
        limit_field="token_budget",
    )


def table_of(table: type[Any]) -> tuple[Knob, ...]:
    """The rows of a dataclass of knobs."""
    rows = []
    for column, row in enumerate(fields(table)):
        said: dict[str, Any] = {"feature": row.name, **row.metadata}
        rows.append(Knob(name=row.name, column=column, default=_number(row.default), **said))
    return tuple(rows)


def _number(default: Any) -> float | None:
    return None if default is None else float(default)


KNOBS = table_of(ServingKnobs)
NAMES = tuple(row.name for row in KNOBS)
ALIASES = {row.alias: row.name for row in KNOBS if row.alias}
KNOB = {row.name: row for row in KNOBS}
KNOBS_DTYPE = np.dtype([(name, "f8") for name in NAMES])
"""A row of the knob matrix as a record."""
ENGINE_FIELDS = tuple((row.name, "f8" if row.kind == "float" else "i8") for row in KNOBS)
"""The knobs in the engine's own record, as whole numbers where they are ones."""


def named(values: Array) -> Array:
    """The memory of a knob matrix (or of one row of it) as records with a field per knob."""
    view: Array = values.view(KNOBS_DTYPE)[..., 0]
    return view


def default_knobs(deployment: Deployment | None = None) -> Array:
    """Values of a freshly started engine; without a deployment, NaN for a knob whose default the deployment decides."""
    rows = KNOBS if deployment is None else [row.on(deployment) for row in KNOBS]
    return np.array([np.nan if row.default is None else row.default for row in rows], np.float64)


def knobs_from_mapping(action: Mapping[str, Any], knobs: Sequence[Knob] = KNOBS) -> Array:
    """Values of all knobs from wire names or aliases; a field that is left out, or None, takes its default."""
    given = canonical_fields(action)
    return np.array([_value(row, given) for row in knobs], np.float64)


def changed_knobs(current: Array, action: Mapping[str, Any], knobs: Sequence[Knob] = KNOBS) -> Array:
    """A row of the knob matrix with the fields of a partial action changed; the others keep their values."""
    given = canonical_fields(action)
    changed: Array = current.copy()
    for row in knobs:
        if row.name in given:
            changed[row.column] = _value(row, given)
    return changed


def canonical_fields(action: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an action by the names of their knobs; an unknown field, or one given twice, is an error."""
    given: dict[str, Any] = {}
    for key, value in action.items():
        name = ALIASES.get(key, key)
        if name not in KNOB:
            raise InvalidActionError(
                f"unknown field {key!r}; allowed: {', '.join(NAMES)} (aliases: {', '.join(ALIASES)})"
            )
        if name in given:
            raise InvalidActionError(f"{name} is given twice, once as {key!r}; give it once")
        given[name] = value
    return given


def _value(row: Knob, given: Mapping[str, Any]) -> float:
    if row.name in given and not (given[row.name] is None and row.limit_field is not None):
        return row.number(given[row.name])
    return np.nan if row.default is None else row.default


def mapping_from_knobs(values: Sequence[float] | Array, knobs: Sequence[Knob] = KNOBS) -> dict[str, Any]:
    """Wire form of a row of the knob matrix; only these knobs, where they are given."""
    return {row.name: row.wire(values[row.column]) for row in knobs}
