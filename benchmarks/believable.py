"""The README's table of what the simulator was checked against: `python -m benchmarks.believable`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.fidelity import DEFAULT_TRUTH, REAL_SET, VIRTUAL_SET, check_real, check_virtual, summary
from llmserve_env.engine.costs import TIER_NAMES
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.comparison import compare
from llmserve_env.profiles.measured import error_of
from llmserve_env.profiles.measurements import load_measurements

MEASUREMENTS = Path(__file__).resolve().parent.parent / "profiler" / "measurements"
MEASURED_FILES = ("h200-141gb.fp16.json", "h200-141gb.int8-int4.json")
SHOWN_ERRORS = {"ttft_p95": "TTFT p95", "e2e_mean": "mean end-to-end", "makespan": "makespan"}
PROFILE = "h200-141gb.llama-3-8b"


def recorded_rows() -> list[tuple[str, str, str]]:
    """Recorded decisions and latencies of vLLM."""
    virtual = check_virtual(DEFAULT_TRUTH / VIRTUAL_SET)
    real, _ = check_real(DEFAULT_TRUTH / REAL_SET)
    figures = summary(virtual, real)
    exact, error = figures["virtual"], figures["real"]["median_error"]
    covered = "FCFS, priority, chunk budgets, small KV pools with and without prefix cache, speculation, sync and async"
    return [
        (
            f"vLLM 0.32's own scheduler, recorded with a virtual clock ({covered})",
            f"{exact['exact']} of {exact['runs']} runs exact: every decision, preemption, free-block count, token time",
            "python -m benchmarks.fidelity",
        ),
        (
            f"vLLM 0.32 end to end on a CPU, {len(real)} recorded runs, step cost fitted per run, median error",
            ", ".join(f"{label} {error[name]:.1%}" for name, label in SHOWN_ERRORS.items()),
            "python -m benchmarks.fidelity",
        ),
    ]


def measured_row() -> tuple[str, str, str]:
    """The H200's iteration times that no fit has seen."""
    profile = load_profile(PROFILE)
    points = [point for name in MEASURED_FILES for point in load_measurements(MEASUREMENTS / name).points]
    cells = []
    for tier in TIER_NAMES:
        compared = compare(profile, tier, points, held_out_only=True)
        error = error_of([c.predicted_ms for c in compared], [c.point.ms for c in compared])
        cells.append(f"{tier} {error.median_pct:.1f}% ({error.p95_pct:.1f}%)")
    files = " ".join(f"profiler/measurements/{name}" for name in MEASURED_FILES)
    return (
        "iterations of Llama-3-8B measured on an H200 and left out of the fit, median (p95) error",
        ", ".join(cells),
        f"llmserve profile compare {PROFILE} {files} --held-out",
    )


def main() -> None:
    """Print the table."""
    print("| checked against | result | in full |\n| --- | --- | --- |")
    for checked, result, command in (*recorded_rows(), measured_row()):
        print(f"| {checked} | {result} | `{command}` |")


if __name__ == "__main__":
    main()
