"""vLLM's `/metrics`: the few figures real mode reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINE = re.compile(r"^(vllm:[a-z0-9_]+)(?:\{[^}]*\})? ([-+0-9.eE]+|NaN|[-+]?Inf)$", re.MULTILINE)


def read_totals(text: str) -> Mapping[str, float]:
    """Each metric's value, summed over its labels; histograms under their `_sum` and `_count`."""
    totals: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        totals[name] = totals.get(name, 0.0) + float(value)
    return totals
