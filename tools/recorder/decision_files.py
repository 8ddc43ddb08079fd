"""From the arrays of recorded decisions to the files that `benchmarks.fidelity` reads.

`runs.json` says what each run was; `steps`, `items`, `events` and `requests` have a row per iteration, item, event and
request, with times in seconds from the start of the run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tools.recorder.decisions import EVENT_COLUMNS, ITEM_COLUMNS, STEP_COLUMNS, TIME_COLUMNS

TABLES = ("steps", "items", "events", "requests")
SUFFIX = ".decisions.npz"
VIRTUAL_TIMES = ("t_sched", "t_start", "t_end", None)
"""Names of the times on a virtual clock, where taking an output in takes no time."""


def pack_decisions(source: Path, target: Path) -> list[str]:
    """Gather the runs of a folder; their names, in order."""
    names = sorted(path.name.removesuffix(SUFFIX) for path in source.glob(f"*{SUFFIX}"))
    descriptions = [json.loads((source / f"{name}.json").read_text(encoding="utf-8")) for name in names]
    tables: dict[str, list[pa.Table]] = {table: [] for table in TABLES}
    for name, description in zip(names, descriptions, strict=True):
        with np.load(source / f"{name}{SUFFIX}", allow_pickle=False) as arrays:
            for table, columns in _columns(dict(arrays), is_virtual="cost" in description).items():
                run = pa.array([name] * len(next(iter(columns.values())))).dictionary_encode()
                tables[table].append(pa.table({"run": run, **columns}))
    target.mkdir(parents=True, exist_ok=True)
    (target / "runs.json").write_text(json.dumps(descriptions, indent=1) + "\n", encoding="utf-8")
    for table, parts in tables.items():
        _write(pa.concat_tables(parts).unify_dictionaries(), target / f"{table}.parquet")
    return names


def _columns(arrays: dict[str, Any], *, is_virtual: bool) -> dict[str, dict[str, Any]]:
    times = VIRTUAL_TIMES if is_virtual else TIME_COLUMNS
    steps = {"step": np.arange(len(arrays["steps"]), dtype=np.int32)}
    steps |= {name: arrays["times_s"][:, i] for i, name in enumerate(times) if name}
    steps |= {name: arrays["steps"][:, i] for i, name in enumerate(STEP_COLUMNS)}
    events = {name: arrays["events"][:, i] for i, name in enumerate(EVENT_COLUMNS)}
    is_preemption = events.pop("is_preemption").astype(bool)
    events["event"] = pa.array(np.where(is_preemption, "preempt", "finish").tolist())
    return {
        "steps": steps,
        "items": {name: arrays["items"][:, i] for i, name in enumerate(ITEM_COLUMNS)},
        "events": events,
        "requests": _requests(arrays),
    }


def _requests(arrays: dict[str, Any]) -> dict[str, Any]:
    counts = arrays["out_len"].astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    names = ("prompt_len", "priority", "prefix_id", "prefix_len")
    return {
        "req": np.arange(len(counts), dtype=np.int32),
        "arrival": arrays["arrival"],
        "out_len": counts,
        **{name: arrays[name].astype(np.int32) for name in names},
        "token_times": pa.ListArray.from_arrays(offsets, arrays["token_times"]),
    }


def _write(table: pa.Table, path: Path) -> None:
    """Small differences between neighbouring rows are what most integer columns have."""
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in integers],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )
