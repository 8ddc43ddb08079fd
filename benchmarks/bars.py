"""The end of a benchmark that has bars: name those that were missed."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def report_missed(bars: Sequence[str]) -> int:
    """Name the missed bars on stderr; the exit status of the benchmark."""
    for bar in bars:
        print(f"missed: {bar}", file=sys.stderr)
    return int(bool(bars))
