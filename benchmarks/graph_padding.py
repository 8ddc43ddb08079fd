"""What padding a batch to a captured CUDA graph costs: `python -m benchmarks.graph_padding`.

vLLM runs a decode batch in the next larger graph that it captured, with rows that compute nothing of use. In the
recorded runs, GPU time beyond the profile's is fitted as a constant, a part per sequence, a share of the decode
attention, and a part per padded row.
"""

from __future__ import annotations

import numpy as np

from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from benchmarks.markdown import markdown_table
from benchmarks.recorded_host import profile_ms
from llmserve_env.arrays import Array
from llmserve_env.profiles import load_profile

CAPTURED = np.array([1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)])
"""Sizes that vLLM 0.26 captures by default, up to 512."""
BANDS = ((9, 64), (65, 128), (129, 256), (257, 512))
ROUNDS = 20
MIN_DEVIATION_MS = 0.01


def decode_rows(run: GpuRun) -> Array:
    """Sequences, padded rows, decode attention, extra and whole GPU time of decode iterations that follow another."""
    steps = run.steps
    by_profile, attention = profile_ms(load_profile("h200-141gb.llama-3-8b").costs().tiers[0], steps)
    is_decode = (steps["prefill_tokens"] == 0) & (steps["tokens"] <= CAPTURED[-1])
    # The first decode after a prefill waits for its launch; its GPU time contains that.
    chosen = is_decode & np.concatenate([[False], is_decode[:-1]])
    sequences, gpu_ms = steps["reqs"][chosen], steps["gpu_ms"][chosen]
    padded = CAPTURED[np.searchsorted(CAPTURED, sequences)] - sequences
    extra = gpu_ms - (by_profile + attention)[chosen]
    return np.column_stack([sequences, padded, attention[chosen], extra, gpu_ms])


def per_row_ms(rows: Array) -> float:
    """GPU time per padded row, by least absolute deviations."""
    sequences, padded, attention, extra, _ = rows.T
    matrix = np.column_stack([np.ones(len(rows)), sequences, attention, padded])
    weights, found = np.ones(len(rows)), np.zeros(4)
    for _ in range(ROUNDS):
        found = np.linalg.lstsq(matrix * weights[:, None], extra * weights, rcond=None)[0]
        weights = 1.0 / np.sqrt(np.maximum(np.abs(extra - matrix @ found), MIN_DEVIATION_MS))
    return float(found[3])


def main() -> None:
    """Print the cost by size of the batch."""
    runs = [run for run in read_gpu_runs(RECORDINGS) if run.weights == "bf16"]
    rows = np.concatenate([decode_rows(run) for run in runs])
    table = []
    for low, high in BANDS:
        band = rows[(rows[:, 0] >= low) & (rows[:, 0] <= high)]
        cost_ms, padded, gpu_ms = per_row_ms(band), band[:, 1].mean(), band[:, 4].mean()
        share = cost_ms * padded / gpu_ms
        table.append(
            [
                f"{low}-{high}",
                f"{len(band):,}",
                f"{padded:.1f}",
                f"{1e3 * cost_ms:.1f}",
                f"{gpu_ms:.2f}",
                f"{share:.2%}",
            ]
        )
    header = [
        "sequences",
        "iterations",
        "padded rows, mean",
        "us per padded row",
        "GPU time, ms",
        "share of the GPU time",
    ]
    print(markdown_table(header, table))


if __name__ == "__main__":
    main()
