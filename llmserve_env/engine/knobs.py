"""The serving knobs: one table, from which every other form of an action follows.

`ServingKnobs` is the table: a field per knob, which `engine.knob` describes.
Inside the package the knobs of many episodes are a float64 matrix [episodes, knobs]; `named` shows the same memory as
records, so that code says `named(knobs)["batch_cap"]` and no column has a number. A value of NaN leaves a knob at its
default. At the edges an action is a mapping of wire names, or `models.ServeAction`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.engine.deployment import MAX_RUNNING, MAX_TOKEN_BUDGET, Deployment
from llmserve_env.engine.knob import Knob as Knob
from llmserve_env.engine.knob import knob as knob
from llmserve_env.engine.knob import table_of as table_of
from llmserve_env.errors import InvalidActionError


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
        is_drafting=True,
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


KNOBS = table_of(ServingKnobs)
NAMES = tuple(row.name for row in KNOBS)
ALIASES = {row.alias: row.name for row in KNOBS if row.alias}
KNOB = {row.name: row for row in KNOBS}
KNOBS_DTYPE = np.dtype([(name, "f8") for name in NAMES])
"""A row of the knob matrix as a record."""
ENGINE_FIELDS = tuple((row.name, "f8" if row.kind == "float" else "i8") for row in KNOBS)
"""The knobs as fields of the engine's own record: integers, except for knobs of the kind float."""


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
