"""The README's table of what the simulator was checked against: `python -m benchmarks.believable`."""

from __future__ import annotations

from benchmarks import live_server
from benchmarks.fidelity import (
    DEFAULT_TRUTH,
    REAL_SET,
    VIRTUAL_SET,
    check_real,
    check_virtual,
    summary,
)
from benchmarks.gpu_engine import grouped, measure, median_abs
from benchmarks.gpu_recordings import RECORDINGS
from benchmarks.markdown import markdown_table
from benchmarks.profile_errors import FIT_FILES, MEASURED, errors
from llmserve_env.profiles import load_profile

GPU_ERRORS = {
    "ttft_mean": "mean TTFT",
    "ttft_p95": "TTFT p95",
    "tpot_mean": "time per output token",
    "e2e_mean": "end-to-end",
    "makespan": "makespan",
}
SHOWN_ERRORS = {"ttft_p95": "TTFT p95", "e2e_mean": "mean end-to-end", "makespan": "makespan"}


def gpu_rows() -> list[tuple[str, str, str]]:
    """Rows for the recorded runs of a vLLM on a GPU, one per model and precision."""
    runs, _ = measure(RECORDINGS)
    rows = []
    for group, members in grouped(runs).items():
        medians, worst = median_abs(members), max(abs(run["errors"]["e2e_mean"]) for run in members)
        shown = ", ".join(f"{label} {medians[name]:.1%}" for name, label in GPU_ERRORS.items())
        rows.append(
            (
                f"vLLM 0.26 on an H200 in real time, {group}, {len(members)} recorded runs, median error",
                f"{shown}; worst end-to-end {worst:.1%}",
                "python -m benchmarks.gpu_engine",
            )
        )
    return rows


def recorded_rows() -> list[tuple[str, str, str]]:
    """Rows for the recorded decisions and latencies of vLLM."""
    virtual = check_virtual(DEFAULT_TRUTH / VIRTUAL_SET)
    real, _ = check_real(DEFAULT_TRUTH / REAL_SET)
    figures = summary(virtual, real)
    exact, error = figures["virtual"], figures["real"]["median_error"]
    covered = (
        "caps and token budgets, also turned in mid-run, priorities, small KV pools with and without prefix cache, "
        "shared prefixes, n-gram and draft-model speculation, sync and async"
    )
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


def live_row() -> tuple[str, str, str]:
    """Row for the latest measurement of the live server."""
    content = live_server.found()
    cells = [
        f"costs fitted to {live_server.COSTS[costs]}: "
        + ", ".join(f"{label} {live_server.worst(errors, name):.1%}" for name, label in live_server.LABELS.items())
        for costs, errors in content["errors"].items()
    ]
    return (
        "a live vLLM 0.32 on a CPU over HTTP, from 0.3 times to twice what it carries, largest error of the means",
        "; ".join(cells),
        "python -m benchmarks.live_server --engine .real",
    )


def measured_row() -> tuple[str, str, str]:
    """Row for the H200's iteration times that were left out of the fit."""
    found = {tier: errors(MEASURED, tier, FIT_FILES, held_out_only=True) for tier in load_profile(MEASURED).tiers}
    return (
        "iterations of Llama-3-8B measured on an H200 and left out of the fit, median (p95) error",
        ", ".join(f"{tier} {error.median_pct:.1f}% ({error.p95_pct:.1f}%)" for tier, error in found.items()),
        "python -m benchmarks.profile_errors",
    )


def main() -> None:
    """Print the table."""
    rows = (*gpu_rows(), *recorded_rows(), live_row(), measured_row())
    print(
        markdown_table(
            ["checked against", "result", "in full"], [(what, found, f"`{how}`") for what, found, how in rows]
        )
    )


if __name__ == "__main__":
    main()
