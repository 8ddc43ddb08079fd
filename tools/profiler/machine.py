"""Data of the measured machine, and costs that are too small to see in whole iterations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from statistics import median
from typing import Any

import torch
import triton

from tools.profiler import fused, grid
from tools.profiler.decoder import Decoder
from tools.profiler.timing import time_iteration

COPIED_BYTES = 1 << 30
CHAIN = 64
"""Calls of a small kernel per timing."""


def machine_facts() -> dict[str, Any]:
    """The card, its copy rates and the software."""
    properties = torch.cuda.get_device_properties(0)
    host = torch.empty(COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    twin = torch.empty_like(device)
    return {
        "gpu": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "host_to_device_bytes_per_s": int(COPIED_BYTES / _copy_seconds(device, host)),
        "device_copy_bytes_per_s": int(2 * COPIED_BYTES / _copy_seconds(twin, device)),
        "date": datetime.now(UTC).date().isoformat(),
        "software": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        },
    }


def small_costs(decoder: Decoder, tier: str) -> dict[str, Any]:
    """Microseconds of each small kernel, and bytes of activations per token."""
    return {
        "small_kernel_us": {name: _chained_us(kernel) for name, kernel in _small_kernels(decoder).items()},
        "activation_bytes_per_token": _activation_bytes_per_token(decoder, tier),
    }


def _small_kernels(decoder: Decoder) -> dict[str, Callable[[], object]]:
    a, tokens = decoder.architecture, 8
    batch = decoder.batch(grid.Point(tokens, 128))
    x, residual = (torch.randn(tokens, a.hidden, device="cuda").bfloat16() for _ in range(2))
    qkv = torch.randn(tokens, a.linears[0][0], device="cuda").bfloat16()
    gate_up = torch.randn(tokens, 2 * a.ffn, device="cuda").bfloat16()
    return {
        "add_norm": lambda: fused.add_norm(x, residual, decoder.norms[0]),
        "rotate": lambda: fused.rotate(qkv, batch.positions, a.heads, a.kv_heads, a.head_dim),
        "write_cache": lambda: fused.write_cache(qkv, batch.slots, decoder.keys[0], decoder.values[0], a.heads),
        "swiglu": lambda: fused.swiglu(gate_up),
    }


def _chained_us(kernel: Callable[[], object]) -> float:
    times = time_iteration(lambda: [kernel() for _ in range(CHAIN)], budget_ms=5.0)
    return round(median(times) / CHAIN * 1e3, 3)


def _activation_bytes_per_token(decoder: Decoder, tier: str) -> int:
    """Growth of peak memory with the tokens of an eager iteration."""
    peaks, sizes = [], (2048, 4096)
    for tokens in sizes:
        batch = decoder.batch(grid.Point(prefill=((tokens, 0),)))
        decoder.prepare(tier, batch)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        decoder.run(tier, batch)
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    return int((peaks[1] - peaks[0]) / (sizes[1] - sizes[0]))


def _copy_seconds(target: torch.Tensor, source: torch.Tensor) -> float:
    times: list[float] = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return median(times)
