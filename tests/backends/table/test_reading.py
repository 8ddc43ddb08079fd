"""A table that is not what it should be is refused, with the file, the column and the row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmserve_env.backends.table.export import METADATA_KEY, columns_digest
from llmserve_env.backends.table.grid import COLUMNS, FULL_GRID, PROMPT_BUCKETS, QUICK_GRID
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.errors import ConfigError

Columns = dict[str, list[Any]]


def plain_columns() -> Columns:
    """A user's table: two batch sizes, two budgets, one of everything else."""
    rows = [
        (b, kv, 0, 0, 64, 10.0 + b, 20.0 + b, 5.0, 100.0 * b, 20.0 + 10 * kv, 0.001)
        for b in (8, 64)
        for kv in (0.5, 1.0)
    ]
    return {name: list(values) for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)}


def write(path: Path, columns: Columns) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def put(name: str, row: int, value: Any) -> Callable[[Columns], None]:
    def change(columns: Columns) -> None:
        columns[name][row] = value

    return change


def drop_row(columns: Columns) -> None:
    for values in columns.values():
        values.pop()


def repeat_row(columns: Columns) -> None:
    for values in columns.values():
        values.append(values[1])


def one_batch(columns: Columns) -> None:
    for values in columns.values():
        del values[2:]


def no_rows(columns: Columns) -> None:
    for values in columns.values():
        values.clear()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("tps"), "missing: tps"),
        (lambda c: c.update(oom=[0, 0, 0, 1]), "unknown: oom"),
        (lambda c: c.update(tps=["a", "b", "c", "d"]), "column tps must hold numbers; got string"),
        (put("tpot_ms", 1, float("nan")), "row 2, column tpot_ms: must be a finite number"),
        (put("tpot_ms", 2, None), "row 3, column tpot_ms: must be a finite number"),
        (put("ttft_p50_ms", 0, -1.0), "row 1, column ttft_p50_ms: must be above 0; got -1"),
        (put("tps", 3, 0.0), "row 4, column tps: must be above 0; got 0"),
        (put("ttft_p99_ms", 2, 3.0), "row 3, column ttft_p99_ms: must not be below ttft_p50_ms; got 3"),
        (put("batch_size", 0, 2048), "row 1, column batch_size: must be from 1 to 1024; got 2048"),
        (put("batch_size", 0, 8.5), "row 1, column batch_size: must be a whole number; got 8.5"),
        (put("kv_budget", 1, 1.5), "row 2, column kv_budget: must be from 0.1 to 1; got 1.5"),
        (put("quant_tier", 1, 9), "row 2, column quant_tier: must be from 0 to 4; got 9"),
        (put("spec_length", 1, 9), "row 2, column spec_length: must be from 0 to 8; got 9"),
        (put("prompt_len_bucket", 0, -64), "row 1, column prompt_len_bucket: must be >= 0; got -64"),
        (put("prompt_len_bucket", 0, 0), "row 1, column prompt_len_bucket: must be above 0"),
        (drop_row, r"grid of 4 points has missing: \(batch_size 64, kv_budget 1, spec_length 0"),
        (repeat_row, r"has given more than once: \(batch_size 8, kv_budget 1"),
        (one_batch, "column batch_size needs two or more values"),
        (no_rows, "the table has no rows"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, change: Callable[[Columns], None], message: str) -> None:
    columns = plain_columns()
    change(columns)
    path = write(tmp_path / "mine.parquet", columns)
    with pytest.raises(ConfigError, match=message) as error:
        LookupTable.load(path, 40.0)
    assert str(error.value).startswith(str(path))


def test_a_missing_file_and_another_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file; make one with"):
        LookupTable.load(tmp_path / "none.parquet")
    (tmp_path / "mine.csv").write_text("batch_size,tps\n1,2\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a parquet file"):
        LookupTable.load(tmp_path / "mine.csv")


def test_a_users_table_needs_the_cards_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.parquet", plain_columns())
    with pytest.raises(ConfigError, match="pass memory_limit_gb"):
        LookupTable.load(path)
    assert LookupTable.load(path, 24.0).memory_limit_gb == 24.0


def test_rows_may_come_in_any_order(tmp_path: Path) -> None:
    columns = plain_columns()
    turned = {name: values[::-1] for name, values in columns.items()}
    straight = LookupTable.load(write(tmp_path / "a.parquet", columns), 40.0)
    reverse = LookupTable.load(write(tmp_path / "b.parquet", turned), 40.0)
    assert straight.grid == reverse.grid
    np.testing.assert_array_equal(straight.measures, reverse.measures)


def test_buckets_may_be_given_by_index(tmp_path: Path) -> None:
    columns = plain_columns()
    columns["prompt_len_bucket"] = [3] * 4
    assert LookupTable.load(write(tmp_path / "a.parquet", columns), 40.0).grid.prompt_len_bucket == (PROMPT_BUCKETS[3],)


def test_an_export_has_the_eleven_columns_and_says_what_made_it(table_path: Path) -> None:
    written = pq.read_table(table_path)
    assert tuple(written.column_names) == COLUMNS
    assert len(COLUMNS) == 11
    origin = json.loads(written.schema.metadata[METADATA_KEY])
    assert origin["task"] == "static_workload"
    assert origin["profile"] == "a100-40gb.llama-3-8b"
    assert {"command", "version", "causes_digest", "memory_limit_gb"} <= set(origin)
    columns = {name: written.column(name).to_numpy() for name in COLUMNS}
    assert origin["digest"] == columns_digest(columns)


def test_the_full_grid_is_that_of_the_format() -> None:
    assert FULL_GRID.shape == (9, 5, 5, 3, 8)
    assert len(FULL_GRID) == len(set(FULL_GRID.points())) == 5400
    assert set(QUICK_GRID.points()) < set(FULL_GRID.points())
    assert len(QUICK_GRID) == 324
