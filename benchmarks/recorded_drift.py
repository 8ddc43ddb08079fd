"""How much equal iterations of the recorded H200 runs differ: `python -m benchmarks.recorded_drift`.

For iterations above the largest captured graph: the time to launch them, and, where the GPU took clearly longer than
that, its time over the profile's.
"""

from __future__ import annotations

import numpy as np

from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from benchmarks.markdown import markdown_table
from benchmarks.recorded_host import profile_ms
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.profiles import load_profile

GPU_BINDS = 1.3
"""Such a multiple of the launch is GPU time; less may be waiting for kernels."""


def row_of(run: GpuRun) -> list[str]:
    """Launch times and GPU times of one run's largest iterations."""
    steps = run.steps
    chosen = steps["tokens"] > run.options["cuda_graph_max_tokens"]
    launch_ms = 1e3 * (steps["t_launch_end"] - steps["t_sched"])[chosen]
    launch_ms = launch_ms[np.isfinite(launch_ms)]
    tiers = load_profile("h200-141gb.llama-3-8b").costs().tiers
    by_profile = sum(profile_ms(tiers[TIER_NUMBERS["FP8" if run.weights == "fp8" else "FP16"]], steps))
    bound = chosen & (steps["gpu_ms"] > GPU_BINDS * 1e3 * (steps["t_launch_end"] - steps["t_sched"]))
    ratio = f"{np.median((steps['gpu_ms'] / by_profile)[bound]):.2f}" if bound.any() else "-"
    quantiles = [f"{ms:.1f}" for ms in np.quantile(launch_ms, [0.1, 0.5, 0.9])]
    return [run.name, f"{chosen.sum():,}", *quantiles, f"{bound.sum():,}", ratio]


def main() -> None:
    """Print one row per run."""
    rows = [row_of(run) for run in read_gpu_runs(RECORDINGS)]
    header = ["run", "no graph", "launch p10, ms", "p50", "p90", "GPU binds", "GPU time / profile, median"]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    main()
