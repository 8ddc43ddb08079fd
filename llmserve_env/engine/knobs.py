"""The six serving knobs an agent may turn at every window boundary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingKnobs:
    """Defaults are those of a freshly started engine."""

    batch_cap: int = 32
    kv_budget_fraction: float = 1.0
    speculation_depth: int = 0
    quantization_tier: int = 0
    prefill_decode_split: bool = False
    priority_routing: bool = False
