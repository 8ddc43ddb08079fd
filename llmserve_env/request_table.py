"""Requests as arrays: what workloads make and the engine serves."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.units import NEVER_PS

_DTYPES: dict[str, type] = {
    "arrival_at_ps": np.int64,
    "prompt_tokens": np.int64,
    "output_tokens": np.int64,
    "priority": np.int64,
    "tenant": np.int64,
    "ttft_slo_ps": np.int64,
    "patience_ps": np.int64,
    "acceptance": np.float64,
    "prefix_id": np.int64,
    "prefix_tokens": np.int64,
    "session_id": np.int64,
}


@dataclass(frozen=True, slots=True)
class RequestTable:
    """One row per request, sorted by arrival; the row index is the request id."""

    arrival_at_ps: Array
    prompt_tokens: Array
    output_tokens: Array
    priority: Array
    """Class of the request, 0 the most urgent."""
    tenant: Array
    ttft_slo_ps: Array
    patience_ps: Array
    """How long the client waits for a first token; NEVER_PS means forever."""
    acceptance: Array
    """Probability that a draft token is accepted."""
    prefix_id: Array
    prefix_tokens: Array
    session_id: Array

    def __post_init__(self) -> None:
        n = len(self.arrival_at_ps)
        for name, dtype in _DTYPES.items():
            column: Array = np.ascontiguousarray(getattr(self, name), dtype=dtype)
            if column.shape != (n,):
                raise ValueError(f"{name} must have {n} rows like arrival_at_ps; got shape {column.shape}")
            object.__setattr__(self, name, column)
        checks = (
            (
                np.all(np.diff(self.arrival_at_ps) >= 0) and (n == 0 or self.arrival_at_ps[0] >= 0),
                "arrival_at_ps must be sorted and start at 0 or later",
            ),
            (np.all(self.prompt_tokens >= 1), "prompt_tokens must be at least 1"),
            (np.all(self.output_tokens >= 1), "output_tokens must be at least 1"),
            (np.all((self.priority >= 0) & (self.priority < 8)), "priority must be in 0..7"),
            (np.all(self.ttft_slo_ps > 0), "ttft_slo_ps must be positive"),
            (np.all(self.patience_ps > 0), "patience_ps must be positive"),
            (np.all((self.acceptance >= 0.0) & (self.acceptance <= 1.0)), "acceptance must be in [0, 1]"),
            (np.all(self.prefix_tokens <= self.prompt_tokens), "prefix_tokens cannot exceed prompt_tokens"),
        )
        for ok, rule in checks:
            if not ok:
                raise ValueError(rule)

    def __len__(self) -> int:
        return len(self.arrival_at_ps)

    @classmethod
    def of(cls, arrival_at_ps: Any, prompt_tokens: Any, output_tokens: Any, **columns: Any) -> RequestTable:
        """A table with plain defaults for the columns not given: one class, no SLO, endless patience."""
        n = len(arrival_at_ps)
        defaults: dict[str, Any] = {
            "priority": 0,
            "tenant": 0,
            "ttft_slo_ps": NEVER_PS,
            "patience_ps": NEVER_PS,
            "acceptance": 0.0,
            "prefix_id": -1,
            "prefix_tokens": 0,
            "session_id": -1,
        }
        unknown = set(columns) - set(defaults)
        if unknown:
            raise ValueError(f"unknown columns {sorted(unknown)}; allowed: {sorted(defaults)}")
        filled = {name: columns.get(name, np.full(n, value)) for name, value in defaults.items()}
        return cls(arrival_at_ps, prompt_tokens, output_tokens, **filled)

    def take(self, rows: Any) -> RequestTable:
        """The given rows (a slice, mask or index array), in order."""
        return RequestTable(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})
