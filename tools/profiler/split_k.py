"""Splitting a product's inner dimension over programs, for shapes with too few output tiles to fill the GPU."""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl

WORKSPACE_BYTES = 256 << 20
MAX_TILES = 1 << 16


@triton.jit
def reduce_splits(
    total, workspace, counters, tile, tiles, split, BN: tl.constexpr, BM: tl.constexpr, SPLITS: tl.constexpr
):
    """Store a partial sum in the workspace; the last program gets the whole sum and True."""
    inside = tl.arange(0, BN)[:, None] * BM + tl.arange(0, BM)[None, :]
    tl.store(workspace + (split * tiles + tile).to(tl.int64) * (BN * BM) + inside, total)
    # The barrier orders every thread's store before the one thread's releasing count.
    tl.debug_barrier()
    arrived = tl.atomic_add(counters + tile, 1, sem="acq_rel")
    is_last = arrived == SPLITS - 1
    if is_last:
        total = tl.zeros_like(total)
        for i in tl.static_range(SPLITS):
            total += tl.load(workspace + (i * tiles + tile).to(tl.int64) * (BN * BM) + inside, volatile=True)
        tl.store(counters + tile, 0)
    return total, is_last


@cache
def workspace(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Partial sums and arrival counters, shared by all products: they run one after another."""
    sums = torch.empty(WORKSPACE_BYTES // 4, dtype=dtype, device="cuda")
    return sums, torch.zeros(MAX_TILES, dtype=torch.int32, device="cuda")


def splits_for(tiles: int, steps: int, programs: int) -> int:
    """A power of two of splits so that about `programs` programs run, each with at least a few steps."""
    splits = 1
    while splits < 8 and tiles * splits * 2 <= programs and steps // (splits * 2) >= 4:
        splits *= 2
    return splits
