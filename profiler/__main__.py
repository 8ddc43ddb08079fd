"""Measure this GPU: `python -m profiler --out measurements.json` (about eight minutes on an H200)."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
import triton

from llmserve_env.profiles.architectures import ARCHITECTURES, DRAFT_OF
from profiler import fused, grid
from profiler.decoder import Decoder
from profiler.timing import time_iteration
from profiler.verify import check_kernels

TIERS = ("FP16", "INT8", "INT4")
DRAFT_CACHE_TOKENS = 270_336
CACHE_TOKENS = grid.MAX_CONTEXT_TOKENS + 36_864


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m profiler", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the measurements")
    parser.add_argument("--model", default="llama-3-8b", choices=sorted(DRAFT_OF))
    parser.add_argument("--tiers", nargs="+", default=list(TIERS), choices=TIERS)
    parser.add_argument("--quick", action="store_true", help="time a dozen well-known iterations per tier only")
    parser.add_argument("--held-out", type=int, default=60, help="random iterations per tier to judge the fit by")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random iterations")
    parser.add_argument("--only-held-out", action="store_true", help="skip the grid and the draft model")
    parser.add_argument("--budget-ms", type=float, default=120.0, help="time spent replaying each iteration")
    options = parser.parse_args()
    results = measure(options)
    print(f"{len(results['points'])} points in {results['seconds']:.0f} s -> {options.out}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything the command asks for, with the machine it ran on; written to the output file after every tier."""
    started = time.time()
    results: dict[str, Any] = {"format_version": 1, "machine": _machine(), "kernel_errors": check_kernels(), "points": []}

    def save(stage: str) -> None:
        results["seconds"] = round(time.time() - started, 1)
        options.out.write_text(json.dumps(results, separators=(",", ":")))
        print(f"{stage}, {results['seconds']:.0f} s", flush=True)

    save(f"{len(results['kernel_errors'])} kernels agree with their references")
    decoder = Decoder(ARCHITECTURES[options.model], CACHE_TOKENS, tuple(options.tiers))
    results["machine"]["small_kernel_us"] = _small_kernel_us(decoder)
    results["machine"]["activation_bytes_per_token"] = _activation_bytes_per_token(decoder, options.tiers[0])
    for tier in options.tiers:
        results["points"] += _time_points(decoder, options.model, tier, _points(options, tier), options.budget_ms)
        results["choices"] = {"gemm": decoder.gemm_times, "attention": decoder.attention_times}
        save(f"{tier} done")
    del decoder
    torch.cuda.empty_cache()
    if not (options.quick or options.only_held_out):
        draft = DRAFT_OF[options.model]
        model = Decoder(draft, DRAFT_CACHE_TOKENS, ("FP16",), greedy=True)
        results["points"] += _time_points(model, draft.name, "FP16", grid.draft_points(), options.budget_ms)
        save("draft model done")
    return results


def _points(options: argparse.Namespace, tier: str) -> list[grid.Point]:
    if options.quick:
        return list(grid.EXPECTED_POINTS)
    held_out = grid.held_out_points(options.held_out, options.seed + TIERS.index(tier))
    if options.only_held_out:
        return held_out
    training = grid.training_points(dense=tier == "FP16")
    expected = [replace(point, held_out=True) for point in grid.EXPECTED_POINTS if point not in training]
    return training + expected + held_out


def _time_points(decoder: Decoder, model: str, tier: str, points: list[grid.Point], budget_ms: float) -> list[dict[str, Any]]:
    rows = []
    for point in points:
        batch = decoder.batch(point)
        decoder.prepare(tier, batch)
        times = time_iteration(lambda batch=batch: decoder.run(tier, batch), budget_ms)  # type: ignore[misc]
        low, _, high = quantiles(times, n=4)
        row = {"model": model, "tier": tier, **asdict(point), "ms": round(median(times), 5)}
        rows.append({**row, "quartiles_ms": [round(low, 5), round(high, 5)], "replays": len(times)})
        print(f"{tier} {point.sequences}x{point.context} q{point.query_tokens} {list(point.prefill)}: {median(times):.3f} ms", flush=True)
    return rows


def _activation_bytes_per_token(decoder: Decoder, tier: str) -> int:
    """Growth of peak memory with the tokens of an eager iteration."""
    peaks = []
    sizes = (2048, 4096)
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


def _small_kernel_us(decoder: Decoder) -> dict[str, float]:
    """Microseconds of each small kernel at eight tokens, one after another as in a layer."""
    a, tokens, chain = decoder.architecture, 8, 64
    batch = decoder.batch(grid.Point(tokens, 128))
    x, residual = (torch.randn(tokens, a.hidden, device="cuda").bfloat16() for _ in range(2))
    qkv = torch.randn(tokens, a.linears[0][0], device="cuda").bfloat16()
    gate_up = torch.randn(tokens, 2 * a.ffn, device="cuda").bfloat16()
    kernels = {
        "add_norm": lambda: fused.add_norm(x, residual, decoder.norms[0]),
        "rotate": lambda: fused.rotate(qkv, batch.positions, a.heads, a.kv_heads, a.head_dim),
        "write_cache": lambda: fused.write_cache(qkv, batch.slots, decoder.keys[0], decoder.values[0], a.heads),
        "swiglu": lambda: fused.swiglu(gate_up),
    }
    return {
        name: round(median(time_iteration(lambda kernel=kernel: [kernel() for _ in range(chain)], 5.0)) / chain * 1e3, 3)  # type: ignore[misc]
        for name, kernel in kernels.items()
    }


def _machine() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    device = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    twin = torch.empty_like(device)
    return {
        "gpu": properties.name,
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "host_to_device_bytes_per_s": int((1 << 30) / _copy_seconds(device, host)),
        "device_copy_bytes_per_s": int((2 << 30) / _copy_seconds(twin, device)),
        "date": datetime.now(UTC).date().isoformat(),
        "software": {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "cuda": str(torch.version.cuda),
            "cudnn": str(torch.backends.cudnn.version()),
        },
    }


def _copy_seconds(target: torch.Tensor, source: torch.Tensor) -> float:
    times = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source, non_blocking=True)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return median(times)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
