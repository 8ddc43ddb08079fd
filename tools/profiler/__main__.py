"""Measure this GPU: `python -m tools.profiler --out measurements.json` (about eight minutes on an H200)."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch

from tools.profiler import grid
from tools.profiler.architectures import ARCHITECTURES, DRAFT_OF
from tools.profiler.decoder import Decoder
from tools.profiler.machine import machine_facts, small_costs
from tools.profiler.schemes import SCHEMES, available
from tools.profiler.timing import time_iteration
from tools.profiler.verify import check_kernels

TIERS = tuple(SCHEMES)
DRAFT_CACHE_TOKENS = 270_336
TRAINING_SEED = 1000
"""Separates the random iterations of the fit from the held-out ones."""
CACHE_TOKENS = grid.MAX_CONTEXT_TOKENS + 36_864


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m tools.profiler", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the measurements")
    parser.add_argument("--model", default="llama-3-8b", choices=sorted(DRAFT_OF))
    parser.add_argument("--tiers", nargs="+", default=available(), choices=TIERS)
    parser.add_argument("--quick", action="store_true", help="time only a dozen well-known iterations per tier")
    parser.add_argument("--held-out", type=int, default=60, help="random held-out iterations per tier")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random iterations")
    parser.add_argument(
        "--training", type=int, default=60, help="random iterations per tier to fit on, in addition to the grid"
    )
    parser.add_argument("--only-random", action="store_true", help="skip the grid and the draft model")
    parser.add_argument("--budget-ms", type=float, default=120.0, help="time spent replaying each iteration")
    options = parser.parse_args()
    results = measure(options)
    print(f"{len(results['points'])} points in {results['seconds']:.0f} s -> {options.out}")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure everything requested, with data of the machine; the output file is written after every tier."""
    started = time.time()
    results: dict[str, Any] = {
        "format_version": 1,
        "machine": machine_facts(),
        "kernel_errors": check_kernels(options.tiers),
        "points": [],
    }

    def save(stage: str) -> None:
        results["seconds"] = round(time.time() - started, 1)
        options.out.write_text(json.dumps(results, separators=(",", ":")))
        print(f"{stage}, {results['seconds']:.0f} s", flush=True)

    save(f"{len(results['kernel_errors'])} kernels agree with their references")
    decoder = Decoder(ARCHITECTURES[options.model], CACHE_TOKENS, tuple(options.tiers))
    results["machine"] |= small_costs(decoder, options.tiers[0])
    for tier in options.tiers:
        results["points"] += _time_points(decoder, options.model, tier, _points(options, tier), options.budget_ms)
        results["choices"] = {"gemm": decoder.gemm_times, "attention": decoder.attention_times}
        save(f"{tier} done")
    del decoder
    torch.cuda.empty_cache()
    if "FP16" in options.tiers and not (options.quick or options.only_random):
        draft = DRAFT_OF[options.model]
        model = Decoder(draft, DRAFT_CACHE_TOKENS, ("FP16",), greedy=True)
        results["points"] += _time_points(model, draft.name, "FP16", grid.draft_points(), options.budget_ms)
        save("draft model done")
    return results


def _points(options: argparse.Namespace, tier: str) -> list[grid.Point]:
    if options.quick:
        return list(grid.EXPECTED_POINTS)
    seed = options.seed + TIERS.index(tier)
    training = grid.random_points(options.training, TRAINING_SEED + seed, held_out=False)
    held_out = grid.random_points(options.held_out, seed, held_out=True)
    if options.only_random:
        return training + held_out
    training = grid.training_points(dense=tier == "FP16") + training
    expected = [replace(point, held_out=True) for point in grid.EXPECTED_POINTS if point not in training]
    return training + expected + held_out


def _time_points(
    decoder: Decoder, model: str, tier: str, points: list[grid.Point], budget_ms: float
) -> list[dict[str, Any]]:
    rows = []
    for point in points:
        batch = decoder.batch(point)
        decoder.prepare(tier, batch)
        times = time_iteration(partial(decoder.run, tier, batch), budget_ms)
        low, _, high = quantiles(times, n=4)
        row = {"model": model, "tier": tier, **asdict(point), "ms": round(median(times), 5)}
        rows.append({**row, "quartiles_ms": [round(low, 5), round(high, 5)], "replays": len(times)})
        what = f"{point.sequences}x{point.context} q{point.query_tokens} {list(point.prefill)}"
        print(f"{tier} {what}: {median(times):.3f} ms", flush=True)
    return rows


if __name__ == "__main__":
    with torch.inference_mode():
        main()
