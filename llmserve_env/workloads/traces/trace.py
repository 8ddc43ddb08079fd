"""A recorded trace in memory, and its replay as a request table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import ValidationError

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError, TraceFormatError
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_NS, ms_to_ps, s_to_ps
from llmserve_env.workloads.traces.blocks import SharedPrefixes, shared_prefixes
from llmserve_env.workloads.traces.formats import MOONCAKE_BLOCK_TOKENS
from llmserve_env.workloads.traces.metadata import METADATA_KEY, TraceMetadata

NO_TENANT = "(none)"
_NS_PER_S = 10**9
_NEEDED = ("arrival_at_ns", "prompt_tokens", "output_tokens")
_KNOWN = (*_NEEDED, "tenant", "priority", "block_ids", "session", "prefix", "prefix_tokens")
BATCH_ROWS = 1 << 16
MAX_TRACE_BYTES = 2_000_000_000
"""Largest trace that is read; twenty million requests take about half of it."""


@dataclass(frozen=True)
class Trace:
    """Recorded requests in order of arrival, the first one at 0."""

    metadata: TraceMetadata
    arrival_at_ns: Array
    prompt_tokens: Array
    output_tokens: Array
    tenant: Array
    """Index into `tenant_names`, the busiest tenant first."""
    tenant_names: tuple[str, ...]
    priority: Array
    session_id: Array
    """-1 if the log names none."""
    prefix_id: Array
    prefix_tokens: Array

    def __len__(self) -> int:
        return len(self.arrival_at_ns)

    @cached_property
    def arrival_s(self) -> Array:
        """Seconds since the first request."""
        return self.arrival_at_ns / _NS_PER_S

    @property
    def duration_s(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_s[-1])

    @property
    def has_tenants(self) -> bool:
        return self.tenant_names != (NO_TENANT,)

    @property
    def has_sessions(self) -> bool:
        return bool(np.any(self.session_id >= 0))

    @property
    def has_prefixes(self) -> bool:
        return bool(np.any(self.prefix_tokens > 0))

    def to_request_table(
        self,
        *,
        ttft_slo_ms: float | Mapping[int, float] | None = None,
        patience_s: float | None = None,
        acceptance: float = 0.0,
        scale: float = 1.0,
        start_s: float = 0.0,
        stop_s: float | None = None,
    ) -> RequestTable:
        """The requests that arrived in [start_s, stop_s), exactly as recorded, as a table that starts at 0.

        Args:
            ttft_slo_ms: one SLO for all requests, or one per priority; traces do not record SLOs.
            patience_s: how long a client waits for its first token; without limit by default.
            acceptance: probability that a draft token is accepted.
            scale: multiplies the rate by compressing time: at 2, every gap is half as long and the same requests arrive
                in half the time. `start_s` and `stop_s` are in the time of the recording.
            start_s: beginning of the part to replay.
            stop_s: its end; None for the end of the trace, last request included.
        """
        rows = self._rows(start_s, stop_s)
        if not 0.0 < scale < float("inf"):
            raise ConfigError(f"scale must be a positive number, 1 for the recorded rate; got {scale}")
        since_ns = self.arrival_at_ns[rows] - round(start_s * _NS_PER_S)
        longest_ns = NEVER_PS // PS_PER_NS
        if len(since_ns) and since_ns[-1] / scale >= longest_ns:
            raise ConfigError(
                f"a replay of {since_ns[-1] / scale / _NS_PER_S:.0f} s is too long; "
                f"at most {longest_ns // _NS_PER_S} s are possible: choose start_s and stop_s, or a larger scale"
            )
        at_ps = since_ns * PS_PER_NS if scale == 1.0 else np.rint(since_ns * (PS_PER_NS / scale)).astype(np.int64)
        return RequestTable.of(
            at_ps,
            self.prompt_tokens[rows],
            self.output_tokens[rows],
            priority=self.priority[rows],
            tenant=self.tenant[rows],
            ttft_slo_ps=_promises_ps(ttft_slo_ms, self.priority[rows]),
            patience_ps=np.full(len(at_ps), NEVER_PS if patience_s is None else s_to_ps(patience_s)),
            acceptance=np.full(len(at_ps), acceptance),
            session_id=self.session_id[rows],
            prefix_id=self.prefix_id[rows],
            prefix_tokens=self.prefix_tokens[rows],
        )

    def _rows(self, start_s: float, stop_s: float | None) -> slice:
        if start_s < 0.0 or (stop_s is not None and stop_s <= start_s):
            raise ConfigError(f"start_s must be 0 or later and before stop_s; got start_s {start_s}, stop_s {stop_s}")
        first = int(np.searchsorted(self.arrival_at_ns, round(start_s * _NS_PER_S)))
        if stop_s is None:
            return slice(first, len(self))
        return slice(first, int(np.searchsorted(self.arrival_at_ns, round(stop_s * _NS_PER_S))))


def _promises_ps(ttft_slo_ms: float | Mapping[int, float] | None, priority: Array) -> Array:
    if ttft_slo_ms is None:
        return np.full(len(priority), NEVER_PS)
    if not isinstance(ttft_slo_ms, Mapping):
        return np.full(len(priority), ms_to_ps(ttft_slo_ms))
    missing = sorted(set(np.unique(priority).tolist()) - set(ttft_slo_ms))
    if missing:
        raise ConfigError(f"ttft_slo_ms has no entry for priorities {missing}; it names {sorted(ttft_slo_ms)}")
    promises = {level: ms_to_ps(slo_ms) for level, slo_ms in ttft_slo_ms.items()}
    return np.array([promises[level] for level in priority.tolist()], dtype=np.int64)


def load_trace(path: Path | str) -> Trace:
    """Load a trace written by `import_trace`.

    Raises:
        TraceFormatError: the file is missing or is not an imported trace.
    """
    path = Path(path)
    metadata, table = _read(path)
    at_ns = table["arrival_at_ns"].to_numpy()
    if not metadata.is_sorted:
        order = np.argsort(at_ns, kind="stable")
        table, at_ns = table.unify_dictionaries().take(order), at_ns[order]
    n = table.num_rows
    tenant, names = _tenants(table["tenant"]) if "tenant" in table.column_names else (np.zeros(n, np.int64), ())
    prompts = table["prompt_tokens"].to_numpy()
    shared = _shared(table, prompts)
    return Trace(
        metadata=metadata,
        arrival_at_ns=at_ns - metadata.first_arrival_at_ns,
        prompt_tokens=prompts,
        output_tokens=table["output_tokens"].to_numpy(),
        tenant=tenant,
        tenant_names=names or (NO_TENANT,),
        priority=table["priority"].to_numpy() if "priority" in table.column_names else np.zeros(n, np.int8),
        session_id=shared.session_id,
        prefix_id=shared.prefix_id,
        prefix_tokens=shared.prefix_tokens,
    )


def _read(path: Path) -> tuple[TraceMetadata, pa.Table]:
    advice = "make one with `llmserve trace import FILE --format ...`"
    if not path.is_file():
        raise TraceFormatError(f"{path}: no such file; {advice}")
    try:
        with pq.ParquetFile(path) as file:
            found = file.metadata.metadata or {}
            if METADATA_KEY.encode() not in found:
                raise TraceFormatError(f"{path}: is parquet without the field {METADATA_KEY!r}; {advice}")
            metadata = TraceMetadata.model_validate_json(found[METADATA_KEY.encode()])
            missing = [name for name in _NEEDED if name not in file.schema_arrow.names]
            if missing:
                raise TraceFormatError(f"{path}: has no column {', '.join(missing)}; {advice}")
            return metadata, _bounded_table(file, path)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        raise TraceFormatError(f"{path}: {METADATA_KEY}.{where}: {problem['msg']}; {advice}") from error
    except pa.ArrowInvalid as error:
        raise TraceFormatError(f"{path}: is not an imported trace ({error}); {advice}") from error


def _bounded_table(file: pq.ParquetFile, path: Path) -> pa.Table:
    """The columns of a trace, read piece by piece: a few bytes of parquet may stand for gigabytes."""
    names = [name for name in file.schema_arrow.names if name in _KNOWN]
    batches, num_bytes = [], 0
    for batch in file.iter_batches(BATCH_ROWS, columns=names):
        num_bytes += batch.nbytes
        if num_bytes > MAX_TRACE_BYTES:
            raise TraceFormatError(
                f"{path}: holds more than {MAX_TRACE_BYTES / 1e9:g} GB when unpacked; import a shorter part of the log"
            )
        batches.append(batch)
    return pa.Table.from_batches(batches, pa.schema([file.schema_arrow.field(name) for name in names]))


def _codes(labels: pa.ChunkedArray) -> tuple[Array, list[str]]:
    """Names as numbers in order of first appearance; -1 for none."""
    encoded = pa.concat_arrays(labels.unify_dictionaries().chunks)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return codes.astype(np.int64), encoded.dictionary.to_pylist()


def _tenants(labels: pa.ChunkedArray) -> tuple[Array, tuple[str, ...]]:
    codes, names = _codes(labels)
    if np.any(codes < 0):
        codes = np.where(codes < 0, len(names), codes)
        names = [*names, NO_TENANT]
    counts = np.bincount(codes, minlength=len(names))
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[codes], tuple(names[i] for i in order)


def _shared(table: pa.Table, prompt_tokens: Array) -> SharedPrefixes:
    if "block_ids" in table.column_names:
        blocks = table["block_ids"].combine_chunks()
        offsets = blocks.offsets.to_numpy()
        block_ids = np.split(blocks.values.to_numpy(), offsets[1:-1])
        return shared_prefixes(block_ids, prompt_tokens, MOONCAKE_BLOCK_TOKENS)
    none = np.full(table.num_rows, -1, dtype=np.int64)
    session = _codes(table["session"])[0] if "session" in table.column_names else none
    prefix = _codes(table["prefix"])[0] if "prefix" in table.column_names else none
    has_tokens = "prefix_tokens" in table.column_names
    tokens = table["prefix_tokens"].to_numpy() if has_tokens else np.zeros(table.num_rows, np.int32)
    return SharedPrefixes(session, prefix, np.where(prefix >= 0, tokens, 0))
