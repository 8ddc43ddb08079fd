"""The columns of a lookup table: five name a grid point, six hold what was measured there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product

PROMPT_BUCKETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
"""Longest prompt of each bucket, in tokens; the last bucket also takes everything longer."""


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One row's knobs and prompt bucket."""

    batch_size: int
    kv_budget: float
    spec_length: int
    quant_tier: int
    prompt_len_bucket: int


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured at a grid point, per replica."""

    ttft_p50_ms: float
    ttft_p99_ms: float
    tpot_ms: float
    tps: float
    gpu_mem_gb: float
    cost_per_1k: float


AXES = tuple(field.name for field in fields(GridPoint))
MEASURES = tuple(field.name for field in fields(Measures))
COLUMNS = AXES + MEASURES


@dataclass(frozen=True, slots=True)
class Grid:
    """Values of each axis, increasing."""

    batch_size: tuple[int, ...]
    kv_budget: tuple[float, ...]
    spec_length: tuple[int, ...]
    quant_tier: tuple[int, ...]
    prompt_len_bucket: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(getattr(self, axis)) for axis in AXES)

    def __len__(self) -> int:
        return math.prod(self.shape)

    def points(self) -> Iterator[GridPoint]:
        """Every point, the last axis fastest."""
        return (GridPoint(*values) for values in product(*(getattr(self, axis) for axis in AXES)))


FULL_GRID = Grid(
    batch_size=(1, 4, 8, 16, 32, 64, 128, 256, 512),
    kv_budget=(0.1, 0.25, 0.5, 0.75, 1.0),
    spec_length=(0, 1, 2, 4, 8),
    quant_tier=(0, 1, 2),
    prompt_len_bucket=PROMPT_BUCKETS,
)
QUICK_GRID = Grid(
    batch_size=(1, 8, 32, 128, 256, 512),
    kv_budget=(0.1, 0.5, 1.0),
    spec_length=(0, 4),
    quant_tier=(0, 1, 2),
    prompt_len_bucket=(128, 1024, 8192),
)
