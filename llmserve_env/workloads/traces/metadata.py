"""Metadata of an imported trace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

METADATA_KEY = "llmserve_trace"
"""Key in the parquet file's metadata."""
_NS_PER_S = 10**9
_EPOCH_FROM_S = 315_532_800
"""Times of 1980 or later count from 1970; smaller numbers count from the start of the recording."""


class TraceMetadata(BaseModel):
    """Provenance of a trace and counts of its import."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    source: str
    """Name of the log it was imported from."""
    format: str
    rows: int
    bad_rows: int
    """Lines left out because they could not be read."""
    failed_requests: int
    """Rows left out because the request had failed."""
    sha256: str
    """Digest of the log file on disk."""
    licence: str
    first_arrival_at_ns: int
    """Time on the log's clock at which the trace's time is zero."""
    is_sorted: bool
    """Whether the rows of the file are in order of arrival."""

    @property
    def start(self) -> str:
        """When the recording began, as far as the log shows."""
        start_s = self.first_arrival_at_ns / _NS_PER_S
        if start_s < _EPOCH_FROM_S:
            return f"{start_s:g} s on the clock of the log"
        return datetime.fromtimestamp(self.first_arrival_at_ns // _NS_PER_S, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
