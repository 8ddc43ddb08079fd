"""Export of a task as a parquet lookup table, with metadata that says what made it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import astuple
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from llmserve_env.arrays import Array
from llmserve_env.backends.table.grid import AXES, COLUMNS, Grid, GridPoint
from llmserve_env.backends.table.saturation import SAMPLE_SEED, saturate
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION

METADATA_KEY = b"llmserve_table"
SIDE_BY_SIDE = 40
"""Points advanced in one compiled call: enough to hide the call, few enough for a smooth progress bar."""
_TYPES = {name: pa.float64() for name in COLUMNS} | {name: pa.int32() for name in AXES if name != "kv_budget"}


def measure_grid(task: Task, grid: Grid, progress: Callable[[int], object] = lambda done: None) -> dict[str, Array]:
    """The table's columns, a row per grid point in the grid's order; `progress` gets the number of points done."""
    rows: list[tuple[float, ...]] = []
    for _, points in groupby(grid.points(), key=lambda point: point.batch_size):
        for chunk in _chunks(list(points)):
            rows += [astuple(p) + astuple(f) for p, f in zip(chunk, saturate(task, chunk), strict=True)]
            progress(len(chunk))
    return dict(zip(COLUMNS, np.array(rows).T, strict=True))


def _chunks(points: Sequence[GridPoint]) -> list[Sequence[GridPoint]]:
    return [points[i : i + SIDE_BY_SIDE] for i in range(0, len(points), SIDE_BY_SIDE)]


def columns_digest(columns: dict[str, Array]) -> str:
    """SHA-256 over all columns in the order of `COLUMNS`."""
    digest = hashlib.sha256()
    for name in COLUMNS:
        digest.update(np.ascontiguousarray(columns[name], np.float64).tobytes())
    return digest.hexdigest()


def describe_origin(task: Task, columns: dict[str, Array], command: str) -> dict[str, Any]:
    """What made the table, for its metadata."""
    profile = load_profile(task.deployment.profile)
    causes = task.model_dump_json(by_alias=True) + profile.model_dump_json()
    return {
        "task": task.id,
        "task_version": task.version,
        "profile": profile.name,
        "memory_limit_gb": task.deployment.memory_limit_gb,
        "seed": SAMPLE_SEED,
        "digest": columns_digest(columns),
        "causes_digest": hashlib.sha256(causes.encode()).hexdigest(),
        "command": command,
        "version": PACKAGE_VERSION,
        "environment_version": ENVIRONMENT_VERSION,
    }


def write_table(path: Path, columns: dict[str, Array], origin: dict[str, Any]) -> None:
    """A parquet file with exactly the table's columns and its origin as metadata."""
    schema = pa.schema([(name, _TYPES[name]) for name in COLUMNS], {METADATA_KEY: json.dumps(origin).encode()})
    table = pa.table({name: pa.array(columns[name]).cast(_TYPES[name]) for name in COLUMNS}, schema=schema)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")


def export_table(
    task: Task, grid: Grid, path: Path, command: str = "", progress: Callable[[int], object] = lambda done: None
) -> dict[str, Any]:
    """Run the simulator at every grid point, write the table, and return its metadata."""
    columns = measure_grid(task, grid, progress)
    origin = describe_origin(task, columns, command)
    write_table(path, columns, origin)
    return origin
