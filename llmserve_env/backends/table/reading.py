"""Reading a lookup table: every column, every row and the whole grid are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from llmserve_env.arrays import Array
from llmserve_env.backends.table.export import METADATA_KEY
from llmserve_env.backends.table.grid import AXES, COLUMNS, MEASURES, PROMPT_BUCKETS, Grid
from llmserve_env.engine.knobs import ALIASES, KNOBS
from llmserve_env.errors import ConfigError

MAX_NAMED = 3
"""Grid points that an error names; it counts the rest."""
_RANGES = {alias: (knob.low, knob.high) for knob in KNOBS for alias, name in ALIASES.items() if name == knob.name}


def read_columns(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Checked columns as numbers, and the metadata of an exported table (empty for others)."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; make one with `llmserve table export`")
    try:
        table = pq.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigError(f"{path}: not a parquet file: {error}") from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    unknown = [name for name in table.column_names if name not in COLUMNS]
    if missing or unknown or len(table.column_names) != len(COLUMNS):
        raise ConfigError(
            f"{path}: a table has exactly the columns {', '.join(COLUMNS)}; "
            f"missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        )
    if table.num_rows == 0:
        raise ConfigError(f"{path}: the table has no rows")
    columns = {name: _numbers(path, name, table.column(name)) for name in COLUMNS}
    _check_ranges(path, columns)
    metadata = json.loads((table.schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return columns, metadata


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> Array:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ConfigError(f"{path}: column {name} must hold numbers; got {kind}")
    values: Array = column.cast(pa.float64()).to_numpy()
    _require(path, name, values, np.isfinite(values), "must be a finite number")
    return values


def _require(path: Path, name: str, values: Array, ok: Array, rule: str) -> None:
    if not ok.all():
        row = int(np.argmin(ok))
        raise ConfigError(f"{path}: row {row + 1}, column {name}: {rule}; got {values[row]:g}")


def _check_ranges(path: Path, columns: dict[str, Array]) -> None:
    for name in AXES:
        values = columns[name]
        if name != "kv_budget":
            _require(path, name, values, values == np.rint(values), "must be a whole number")
        if name in _RANGES:
            low, high = _RANGES[name]
            _require(path, name, values, (values >= low) & (values <= high), f"must be from {low:g} to {high:g}")
    _require(path, "prompt_len_bucket", columns["prompt_len_bucket"], columns["prompt_len_bucket"] >= 0, "must be >= 0")
    for name in MEASURES:
        _require(path, name, columns[name], columns[name] > 0.0, "must be above 0")
    p50, p99 = columns["ttft_p50_ms"], columns["ttft_p99_ms"]
    _require(path, "ttft_p99_ms", p99, p99 >= p50, "must not be below ttft_p50_ms")


def bucket_bounds(path: Path, buckets: Array) -> Array:
    """Longest prompt of each row's bucket: given in tokens, or as the index 0..7 of the usual bounds."""
    if buckets.max() < len(PROMPT_BUCKETS):
        bounds: Array = np.array(PROMPT_BUCKETS)[buckets.astype(int)]
        return bounds
    _require(path, "prompt_len_bucket", buckets, buckets > 0, "must be above 0 when buckets are given in tokens")
    return buckets


def arrange(path: Path, columns: dict[str, Array]) -> tuple[Grid, Array]:
    """The grid and its measures, shape grid.shape + (6,); a grid with holes or double points is refused."""
    named = columns | {"prompt_len_bucket": bucket_bounds(path, columns["prompt_len_bucket"])}
    uniques, places = zip(*(np.unique(named[axis], return_inverse=True) for axis in AXES), strict=True)
    for axis, values in zip(AXES[:2], uniques, strict=False):
        if len(values) < 2:
            raise ConfigError(f"{path}: column {axis} needs two or more values to interpolate between; got {values}")
    shape = tuple(len(values) for values in uniques)
    cell = np.ravel_multi_index(places, shape)
    rows_of_cell = np.bincount(cell, minlength=int(np.prod(shape)))
    _refuse_cells(path, uniques, shape, rows_of_cell > 1, "given more than once")
    _refuse_cells(path, uniques, shape, rows_of_cell == 0, "missing")
    measures = np.column_stack([columns[name] for name in MEASURES])[np.argsort(cell)]
    batch, kv, depth, tier, bucket = (values.tolist() for values in uniques)
    whole = [tuple(int(value) for value in values) for values in (batch, depth, tier, bucket)]
    grid = Grid(whole[0], tuple(kv), *whole[1:])
    return grid, measures.reshape(*shape, len(MEASURES))


def _refuse_cells(path: Path, uniques: tuple[Array, ...], shape: tuple[int, ...], is_wrong: Array, what: str) -> None:
    wrong = np.flatnonzero(is_wrong)
    if not len(wrong):
        return
    names = []
    for cell in wrong[:MAX_NAMED]:
        at = np.unravel_index(cell, shape)
        names.append("(" + ", ".join(f"{a} {u[i]:g}" for a, u, i in zip(AXES, uniques, at, strict=True)) + ")")
    more = f" and {len(wrong) - MAX_NAMED} more" if len(wrong) > MAX_NAMED else ""
    raise ConfigError(f"{path}: the grid of {int(np.prod(shape))} points has {what}: {', '.join(names)}{more}")
