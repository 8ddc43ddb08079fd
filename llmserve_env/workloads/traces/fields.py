"""Convert a chunk of raw rows to a typed table; every row that cannot be used is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from llmserve_env.workloads.traces.bad_rows import BadRows
from llmserve_env.workloads.traces.formats import LogFormat
from llmserve_env.workloads.traces.rows import Problem, RawChunk
from llmserve_env.workloads.traces.values import Column, parse_arrivals, parse_block_ids, parse_labels, parse_whole

MAX_TOKENS = 2**31 - 1
MAX_PRIORITY = 7


@dataclass(slots=True)
class RowCounts:
    """Rows left out: defects of the log, and requests that failed when they were served."""

    bad: BadRows
    failed_requests: int = 0


def parse_chunk(chunk: RawChunk, log_format: LogFormat, counts: RowCounts) -> pa.Table:
    """The usable rows of a chunk; the others are added to `counts`."""
    counts.failed_requests += chunk.failed_requests
    columns = {name: _parse(name, values, log_format) for name, values in chunk.values.items()}
    usable = np.ones(len(chunk.lines), dtype=bool)
    bad: dict[int, str] = {}
    for name, column in columns.items():
        for row, reason in column.bad.items():
            bad.setdefault(row, f"{log_format.name_of(name)}: {reason}")
    if log_format.zero_output_is_failure:
        failed = columns["output_tokens"].values.to_numpy() == 0
        failed[list(bad)] = False
        _name_empty_prompts(columns["prompt_tokens"], failed, bad, log_format)
        counts.failed_requests += int(failed.sum())
        usable &= ~failed
    _name_long_prefixes(columns, bad)
    # Sort by line, so that the first bad row of the log is reported first.
    found = [Problem(chunk.lines[row], reason, chunk.num_lines.get(row, 1)) for row, reason in bad.items()]
    for problem in sorted([*chunk.problems, *found]):
        counts.bad.add(*problem)
    usable[list(bad)] = False
    table = pa.table({name: column.values for name, column in columns.items()})
    return table if usable.all() else table.filter(pa.array(usable))


def _name_empty_prompts(
    prompts: Column, failed: npt.NDArray[np.bool_], bad: dict[int, str], log_format: LogFormat
) -> None:
    """In formats where 0 output tokens mean a failure, check that answered requests have a prompt."""
    for row in np.flatnonzero((prompts.values.to_numpy() == 0) & ~failed).tolist():
        source = log_format.name_of("prompt_tokens")
        bad.setdefault(row, f"{source}: 0; allowed: a whole number from 1 to {MAX_TOKENS}")


def _name_long_prefixes(columns: dict[str, Column], bad: dict[int, str]) -> None:
    if "prefix_tokens" not in columns:
        return
    shared = columns["prefix_tokens"].values.to_numpy()
    prompts = columns["prompt_tokens"].values.to_numpy()
    for row in np.flatnonzero(shared > prompts).tolist():
        bad.setdefault(row, f"prefix_tokens: {shared[row]} in a prompt of {prompts[row]}; allowed: at most the prompt")


def _parse(name: str, values: Sequence[Any], log_format: LogFormat) -> Column:
    is_mandatory = name in log_format.mandatory
    match name:
        case "arrival":
            return parse_arrivals(values, log_format.time_unit)
        case "prompt_tokens" | "output_tokens":
            return parse_whole(values, 0 if log_format.zero_output_is_failure else 1, MAX_TOKENS, pa.int32())
        case "priority":
            return parse_whole(values, 0, MAX_PRIORITY, pa.int8(), missing=None if is_mandatory else 0)
        case "prefix_tokens":
            return parse_whole(values, 0, MAX_TOKENS, pa.int32(), missing=0)
        case "block_ids":
            return parse_block_ids(values)
        case _:
            return parse_labels(values, is_mandatory)
