"""Read a log in chunks of raw values: one list per field, with the line number of each row."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TextIO

from llmserve_env.errors import TraceFormatError
from llmserve_env.workloads.traces.formats import LogFormat, formats_with_columns

CHUNK_ROWS = 1 << 12
"""Small enough to keep garbage collection cheap, large enough for columnar processing to pay off."""
MAX_LINE_CHARS = 8_000_000
"""A prompt of two million tokens fits, and a compressed file of a single endless line does not fill the memory."""
_LABEL_SEPARATOR = " / "


class Problem(NamedTuple):
    """Lines that hold no row, starting at `line`."""

    line: int
    reason: str
    num_lines: int = 1


@dataclass(slots=True)
class RawChunk:
    """Values as they are in the log; every list of values is as long as `lines`."""

    lines: list[int] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    num_lines: dict[int, int] = field(default_factory=dict)
    """Number of lines of the rows that span more than one."""
    problems: list[Problem] = field(default_factory=list)
    failed_requests: int = 0


def read_rows(text: TextIO, log_format: LogFormat, source: str) -> Iterator[RawChunk]:
    """The rows of a CSV or JSON log."""
    reader = read_csv if log_format.container == "csv" else read_jsonl
    return reader(bounded_lines(text, source), log_format, source)


def bounded_lines(text: TextIO, source: str) -> Iterator[str]:
    """The lines of a log, one at a time; a line that would fill the memory refuses the log."""
    for number in count(1):
        line = text.readline(MAX_LINE_CHARS + 1)
        if not line:
            return
        if len(line) > MAX_LINE_CHARS:
            raise TraceFormatError(
                f"{source}:{number}: more than {MAX_LINE_CHARS:,} characters in one line; allowed: one request per line"
            )
        yield line


def read_csv(text: Iterable[str], log_format: LogFormat, source: str) -> Iterator[RawChunk]:
    """Chunks of a CSV file with a header line."""
    reader = csv.reader(text, delimiter=log_format.delimiter, skipinitialspace=True)
    header = next(reader, [])
    positions = _positions([name.strip() for name in header], log_format, source)
    while True:
        chunk = RawChunk()
        rows = _csv_rows(reader, len(header), chunk)
        columns = list(zip(*rows, strict=True)) or [()] * len(header)
        chunk.values = {name: _joined([columns[i] for i in where]) for name, where in positions.items()}
        yield chunk
        if len(rows) < CHUNK_ROWS:
            return


def _csv_rows(reader: Any, width: int, chunk: RawChunk) -> list[list[str]]:
    """Rows of the right width, up to a chunk; the chunk records where each starts and which lines are not rows."""
    rows: list[list[str]] = []
    while len(rows) < CHUNK_ROWS:
        start = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            chunk.problems.append(Problem(start, f"is not CSV: {error}", reader.line_num - start + 1))
            continue
        if len(row) == width:
            if reader.line_num > start:
                chunk.num_lines[len(rows)] = reader.line_num - start + 1
            chunk.lines.append(start)
            rows.append(row)
        elif row:  # a blank line is not a bad row
            chunk.problems.append(_misshapen(start, reader.line_num, len(row), width))
    return rows


def _misshapen(start: int, end: int, found: int, width: int) -> Problem:
    spread = f" over lines {start} to {end} (an open quote?)" if end > start else ""
    return Problem(start, f"has {found} fields{spread}; allowed: {width}, as in the header", end - start + 1)


def _positions(header: list[str], log_format: LogFormat, source: str) -> dict[str, tuple[int, ...]]:
    """Position of each field in a row; a missing mandatory column refuses the log."""
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


def read_jsonl(text: Iterable[str], log_format: LogFormat, source: str) -> Iterator[RawChunk]:
    """Chunks of a file with one JSON object per line."""
    getters = {name: _getter(paths) for name, paths in log_format.columns.items()}
    has_failed = log_format.has_failed
    chunk = RawChunk(values={name: [] for name in getters})
    for line, content in zip(count(1), text, strict=False):
        if line == 1 and content.lstrip().startswith("["):
            raise TraceFormatError(
                f"{source}:1: is a JSON array; allowed: one JSON object per line (as jq -c '.[]' writes)"
            )
        record = _record(line, content, chunk.problems)
        if record is None:
            continue
        if has_failed is not None and has_failed(record):
            chunk.failed_requests += 1
            continue
        chunk.lines.append(line)
        for name, get in getters.items():
            chunk.values[name].append(get(record))
        if len(chunk.lines) == CHUNK_ROWS:
            yield chunk
            chunk = RawChunk(values={name: [] for name in getters})
    yield chunk


def _record(line: int, content: str, problems: list[Problem]) -> dict[str, Any] | None:
    """The object on a line; None for a blank line or a recorded problem."""
    if not content.strip():
        return None
    try:
        record = json.loads(content)
    except (ValueError, RecursionError) as error:
        problems.append(Problem(line, f"is not JSON: {error}; allowed: one JSON object per line"))
        return None
    if isinstance(record, dict):
        return record
    problems.append(Problem(line, f"is a JSON {type(record).__name__}; allowed: an object"))
    return None


def _getter(paths: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Any]:
    """Look up dotted paths in order and return the first value found."""
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
