"""Rows of a log in chunks of raw values, one list per field, each row with its line number."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TextIO

from llmserve_env.errors import TraceFormatError
from llmserve_env.traces.bad_rows import BadRows
from llmserve_env.traces.formats import LogFormat, formats_with_columns

CHUNK_ROWS = 1 << 16
_LABEL_SEPARATOR = " / "


@dataclass(slots=True)
class RawChunk:
    """Values as the log has them; every list is as long as `lines`."""

    lines: list[int]
    values: dict[str, list[Any]]


@dataclass(slots=True)
class RowCounts:
    """Rows left out: those that are defects of the log, and requests that failed when they were served."""

    bad: BadRows
    failed_requests: int = 0


def read_rows(text: TextIO, log_format: LogFormat, counts: RowCounts) -> Iterator[RawChunk]:
    """The rows of a log, whatever its container."""
    reader = read_csv if log_format.container == "csv" else read_jsonl
    return reader(text, log_format, counts)


def read_csv(text: TextIO, log_format: LogFormat, counts: RowCounts) -> Iterator[RawChunk]:
    """Chunks of a CSV file with a header line."""
    reader = csv.reader(text, delimiter=log_format.delimiter, skipinitialspace=True)
    header = next(reader, [])
    positions = _positions([name.strip() for name in header], log_format, counts.bad.source)
    for lines, rows in _csv_chunks(reader, len(header), counts.bad):
        columns = list(zip(*rows, strict=True))
        values = {name: _joined([columns[i] for i in where]) for name, where in positions.items()}
        yield RawChunk(lines, values)


def _csv_chunks(reader: Any, width: int, bad: BadRows) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Rows of the right width with the line each starts on."""
    lines: list[int] = []
    rows: list[list[str]] = []
    while True:
        start = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            bad.add(start, f"is not CSV: {error}", reader.line_num - start + 1)
            continue
        if len(row) != width:
            # A blank line holds no request, so it is no bad row either.
            if row:
                _add_misshapen(bad, start, reader.line_num, len(row), width)
            continue
        lines.append(start)
        rows.append(row)
        if len(rows) == CHUNK_ROWS:
            yield lines, rows
            lines, rows = [], []
    if rows:
        yield lines, rows


def _add_misshapen(bad: BadRows, start: int, end: int, found: int, width: int) -> None:
    spread = f" over lines {start} to {end} (an open quote?)" if end > start else ""
    bad.add(start, f"has {found} fields{spread}; the header has {width}", end - start + 1)


def _positions(header: list[str], log_format: LogFormat, source: str) -> dict[str, tuple[int, ...]]:
    """Where each field stands in a row; a mandatory column that is missing refuses the log."""
    positions = {}
    for name, columns in log_format.columns.items():
        if all(column in header for column in columns):
            positions[name] = tuple(header.index(column) for column in columns)
        elif name in log_format.mandatory:
            fitting = formats_with_columns(header)
            hint = f"; these columns fit --format {' or '.join(fitting)}" if fitting else ""
            raise TraceFormatError(
                f"{source}:1: no column {log_format.name_of(name)!r} for {name} in format {log_format.name}; "
                f"the header has {header}{hint}"
            )
        for column in columns:
            if header.count(column) > 1:
                raise TraceFormatError(
                    f"{source}:1: column {column!r} appears {header.count(column)} times; allowed: once"
                )
    return positions


def _joined(columns: list[tuple[str, ...]]) -> list[str]:
    if len(columns) == 1:
        return list(columns[0])
    return [_LABEL_SEPARATOR.join(parts) for parts in zip(*columns, strict=True)]


def read_jsonl(text: TextIO, log_format: LogFormat, counts: RowCounts) -> Iterator[RawChunk]:
    """Chunks of a file with one JSON object per line."""
    getters = {name: _getter(paths) for name, paths in log_format.columns.items()}
    chunk = RawChunk([], {name: [] for name in getters})
    has_failed = log_format.has_failed
    for line, record in _json_records(text, counts.bad):
        if has_failed is not None and has_failed(record):
            counts.failed_requests += 1
            continue
        chunk.lines.append(line)
        for name, get in getters.items():
            chunk.values[name].append(get(record))
        if len(chunk.lines) == CHUNK_ROWS:
            yield chunk
            chunk = RawChunk([], {name: [] for name in getters})
    if chunk.lines:
        yield chunk


def _json_records(text: TextIO, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, content in zip(count(1), text, strict=False):
        if not content.strip():
            continue
        if line == 1 and content.lstrip().startswith("["):
            raise TraceFormatError(
                f"{bad.source}:1: is a JSON array; allowed: one JSON object per line (as from jq -c '.[]')"
            )
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:
            bad.add(line, f"is not JSON: {error}")
            continue
        if isinstance(record, dict):
            yield line, record
        else:
            bad.add(line, f"is a JSON {type(record).__name__}; allowed: an object")


def _getter(paths: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Any]:
    """Look up dotted paths in order; the first that holds something wins."""
    if len(paths) == 1 and "." not in paths[0]:
        name = paths[0]
        return lambda record: record.get(name)
    keys = [path.split(".") for path in paths]

    def get(record: Mapping[str, Any]) -> Any:
        for path in keys:
            value: Any = record
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                return value
        return None

    return get
