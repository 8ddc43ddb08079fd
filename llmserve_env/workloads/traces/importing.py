"""Import a request log as a compact parquet trace, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from llmserve_env.errors import TraceFormatError
from llmserve_env.workloads.traces.bad_rows import BadRows
from llmserve_env.workloads.traces.fields import RowCounts, parse_chunk
from llmserve_env.workloads.traces.formats import LogFormat
from llmserve_env.workloads.traces.metadata import METADATA_KEY, TraceMetadata
from llmserve_env.workloads.traces.rows import read_rows
from llmserve_env.workloads.traces.source import Progress, open_log

_ROW_GROUP_ROWS = 1 << 19
_LABELS = ("tenant", "session", "prefix")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What was written and what was left out."""

    path: Path
    metadata: TraceMetadata
    bad_rows: BadRows


@dataclass(slots=True)
class _Arrivals:
    """Facts about arrivals collected while reading, so that the file is read only once."""

    first_ns: int = 2**63 - 1
    last_ns: int = -1
    is_sorted: bool = True

    def add(self, arrivals: pa.ChunkedArray) -> None:
        at_ns = arrivals.to_numpy()
        # The end of the previous chunk is the latest arrival so far, as long as all were in order.
        self.is_sorted = self.is_sorted and bool(at_ns[0] >= self.last_ns) and bool((at_ns[1:] >= at_ns[:-1]).all())
        self.first_ns = min(self.first_ns, int(at_ns.min()))
        self.last_ns = max(self.last_ns, int(at_ns.max()))


def import_trace(
    log: Path,
    log_format: LogFormat,
    output: Path,
    *,
    strict: bool = False,
    num_bad_shown: int = 10,
    licence: str | None = None,
    progress: Progress = lambda num_bytes: None,
) -> ImportResult:
    """Read a request log and write it as a parquet trace at `output`.

    Rows keep the order of the log; `load_trace` sorts them by arrival. Rows that cannot be used are left out
    and counted, and the first `num_bad_shown` are kept with line number and reason; `strict` raises at the first one.
    Memory does not grow with the length of the log.

    Raises:
        TraceFormatError: the log cannot be read as this format, or holds no usable request.
    """
    counts = RowCounts(BadRows(str(log), strict, num_bad_shown))
    arrivals = _Arrivals()
    unfinished = output.with_name(f"{output.name}.unfinished")
    num_rows = 0
    try:
        with open_log(log, progress) as source, _Writer(unfinished) as writer:
            for chunk in read_rows(source.text, log_format, str(log)):
                table = parse_chunk(chunk, log_format, counts)
                if table.num_rows:
                    arrivals.add(table["arrival"])
                    writer.write(table)
                    num_rows += table.num_rows
            _require_rows(num_rows, counts, log)
            metadata = TraceMetadata(
                source=log.name,
                format=log_format.name,
                rows=num_rows,
                bad_rows=counts.bad.num_lines,
                failed_requests=counts.failed_requests,
                sha256=source.sha256(),
                licence=log_format.licence if licence is None else licence,
                first_arrival_at_ns=arrivals.first_ns,
                is_sorted=arrivals.is_sorted,
            )
            writer.finish(metadata)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return ImportResult(output, metadata, counts.bad)


def _require_rows(num_rows: int, counts: RowCounts, log: Path) -> None:
    if num_rows:
        return
    left_out = counts.bad.num_lines + counts.failed_requests
    reasons = f":\n{counts.bad.describe()}" if counts.bad.first else ""
    raise TraceFormatError(
        f"{log}: no usable request in {left_out} rows ({counts.failed_requests} of them failed requests); "
        f"at least 1 is needed, so check --format and the columns{reasons}"
    )


def _as_stored(table: pa.Table) -> pa.Table:
    """The table as it is written: names are dictionary-encoded, and the arrival column's name has its unit."""
    columns = {name: table[name].dictionary_encode() if name in _LABELS else table[name] for name in table.column_names}
    return pa.table({"arrival_at_ns": columns.pop("arrival"), **columns})


class _Writer:
    """Regroup chunks of any size into row groups of a useful size."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[pa.Table] = []
        self._num_pending = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, table: pa.Table) -> None:
        self._pending.append(table)
        self._num_pending += table.num_rows
        if self._num_pending >= _ROW_GROUP_ROWS:
            self._flush()

    def finish(self, metadata: TraceMetadata) -> None:
        self._flush()
        if self._writer is not None:
            self._writer.add_key_value_metadata({METADATA_KEY: metadata.model_dump_json()})

    def _flush(self) -> None:
        if not self._pending:
            return
        table = _as_stored(pa.concat_tables(self._pending))
        if self._writer is None:
            self._writer = self._open(table.schema)
        self._writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        self._pending, self._num_pending = [], 0

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        labels = [name for name in schema.names if name in _LABELS]
        numbers = {name: "DELTA_BINARY_PACKED" for name in schema.names if pa.types.is_integer(schema.field(name).type)}
        return pq.ParquetWriter(self._path, schema, compression="zstd", use_dictionary=labels, column_encoding=numbers)
