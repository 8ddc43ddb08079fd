"""Logs written for one test, and the public traces if they are beside the checkout."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmserve_env.workloads.traces.formats import resolve_format
from llmserve_env.workloads.traces.importing import ImportResult, import_trace
from llmserve_env.workloads.traces.trace import Trace, load_trace

RAW = Path(__file__).resolve().parents[4] / "shared" / "traces" / "raw"

Importer = Callable[..., ImportResult]
Loader = Callable[..., Trace]


@pytest.fixture
def import_text(tmp_path: Path) -> Importer:
    """Import a log given as text."""

    def run(text: str | bytes, name: str, *, compress: bool = False, **options: Any) -> ImportResult:
        content = text if isinstance(text, bytes) else text.encode()
        log = tmp_path / ("log.gz" if compress else "log")
        log.write_bytes(gzip.compress(content) if compress else content)
        columns = {key: options.pop(key) for key in ("columns", "time_unit", "delimiter") if key in options}
        return import_trace(log, resolve_format(name, **columns), tmp_path / "trace.parquet", **options)

    return run


@pytest.fixture
def trace_of(import_text: Importer) -> Loader:
    """A trace from columns of the plain CSV format."""

    def make(**columns: Any) -> Trace:
        rows = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        return load_trace(import_text("\n".join(lines), "csv").path)

    return make


@pytest.fixture
def real_trace(tmp_path: Path) -> Loader:
    """A public trace, imported; the test is skipped if the file is missing."""

    def make(file: str, name: str) -> Trace:
        if not (RAW / file).is_file():
            pytest.skip(f"the public trace {file} is not in ../shared/traces/raw")
        return load_trace(import_trace(RAW / file, resolve_format(name), tmp_path / f"{file}.parquet").path)

    return make
