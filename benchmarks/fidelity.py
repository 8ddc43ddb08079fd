"""Compare the simulator with recorded runs of vLLM: `python -m benchmarks.fidelity [--truth DIR] [--json]`.

Virtual-clock runs must be equal, decision by decision. Real runs are compared in their latencies, with a step cost
fitted to each run; errors are fractions of the recorded value (0.02 is 2 %).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.recorded_runs import RecordedRun, load_runs
from benchmarks.replay import compare, recorded_engine, serve_all
from benchmarks.step_cost import fit_step_cost
from llmserve_env.units import PS_PER_NS, PS_PER_S

DEFAULT_TRUTH = Path(__file__).resolve().parents[1] / "recordings"
VIRTUAL_SET, REAL_SET = "sched_virtualclock", "real_cpuclock"
SETS = (VIRTUAL_SET, REAL_SET)
ERROR_NAMES = ("ttft_p50", "ttft_p95", "e2e_mean", "makespan")


@dataclass(frozen=True, slots=True)
class VirtualResult:
    """One virtual-clock run."""

    name: str
    iterations: int
    items: int
    preemptions: int
    difference: str | None
    largest_time_error_ps: int = 0


@dataclass(frozen=True, slots=True)
class RealResult:
    """One run of the real engine: errors as fractions, and preemptions beside the recorded ones."""

    name: str
    errors: dict[str, float]
    preemptions: int
    recorded_preemptions: int
    note: str


def missing_sets(truth: Path) -> list[str]:
    """Recorded sets that are missing."""
    return [name for name in SETS if not (truth / name / "runs.json").is_file()]


def check_virtual(directory: Path) -> list[VirtualResult]:
    """Every run of a virtual-clock set; a run that cannot be read or simulated counts as different."""
    unreadable: dict[str, str] = {}
    results = [_check_virtual_run(run) for run in load_runs(directory, unreadable)]
    return results + [VirtualResult(name, 0, 0, 0, reason) for name, reason in unreadable.items()]


def _check_virtual_run(run: RecordedRun) -> VirtualResult:
    recorded = run.name, len(run.steps.ended_at_s), len(run.items.kind), _recorded_preemptions(run)
    if run.cost is None:
        return VirtualResult(*recorded, "the record has no cost constants")
    if refusal := _refusal(run):
        return VirtualResult(*recorded, f"not served: {refusal}")
    result = compare(run, run.cost)
    return VirtualResult(*recorded, result.difference, result.largest_time_error_ps)


def check_real(directory: Path) -> tuple[list[RealResult], dict[str, str]]:
    """(every run of a real set that can be simulated, reasons for the others by run)."""
    failed: dict[str, str] = {}
    results = []
    for run in load_runs(directory, failed):
        if refusal := _refusal(run):
            failed[run.name] = refusal
        else:
            results.append(_check_real_run(run))
    return results, failed


def _refusal(run: RecordedRun) -> str | None:
    """The reason why the engine cannot be configured like this run."""
    try:
        recorded_engine(run, fit_step_cost(run.steps))
    except ValueError as error:
        return str(error)
    return None


def _check_real_run(run: RecordedRun) -> RealResult:
    records = serve_all(recorded_engine(run, fit_step_cost(run.steps)), run)
    arrivals_s = run.requests.arrival_at_ps / PS_PER_S
    ours = _latencies(arrivals_s, records["first_token_at_ps"] / PS_PER_S, records["finished_at_ps"] / PS_PER_S)
    recorded = _latencies(
        arrivals_s,
        np.array([times[0] for times in run.token_times_s]),
        np.array([times[-1] for times in run.token_times_s]),
    )
    return RealResult(
        name=run.name,
        errors={name: abs(ours[name] / recorded[name] - 1.0) for name in ERROR_NAMES},
        preemptions=int(records["preemptions"].sum()),
        recorded_preemptions=_recorded_preemptions(run),
        note=_drafts_note(run),
    )


def _latencies(arrivals_s: Any, first_s: Any, last_s: Any) -> dict[str, float]:
    return {
        "ttft_p50": float(np.percentile(first_s - arrivals_s, 50)),
        "ttft_p95": float(np.percentile(first_s - arrivals_s, 95)),
        "e2e_mean": float((last_s - arrivals_s).mean()),
        "makespan": float(last_s.max()),
    }


def _drafts_note(run: RecordedRun) -> str:
    """Note on drafts: the engine uses a constant depth, while an n-gram lookup may find fewer tokens."""
    decodes = run.items.drafts[run.items.kind == 0]
    short = int((decodes < run.options.speculation_depth).sum())
    return f"{short} of {len(decodes)} decode items with fewer drafts than the depth" if short else ""


def _recorded_preemptions(run: RecordedRun) -> int:
    return sum(event.event == "preempt" for event in run.events)


def summary(virtual: list[VirtualResult], real: list[RealResult]) -> dict[str, Any]:
    """The figures that `--json` prints; medians are over runs; None without runs."""
    return {
        "virtual": {
            "runs": len(virtual),
            "exact": sum(result.difference is None for result in virtual),
            "mismatches": [{"run": r.name, "difference": r.difference} for r in virtual if r.difference is not None],
        },
        "real": {
            "runs": len(real),
            "median_error": {
                name: float(np.median([result.errors[name] for result in real])) if real else None
                for name in ERROR_NAMES
            },
        },
    }


def print_virtual(results: list[VirtualResult]) -> None:
    """One line per run with its first difference."""
    print(f"Virtual-clock runs: {sum(r.difference is None for r in results)} of {len(results)} exact")
    print(f"  {'run':26}{'iterations':>11}{'items':>10}{'preemptions':>13}{'largest time error':>20}  result")
    for r in results:
        error = f"{r.largest_time_error_ps / PS_PER_NS:.3f} ns"
        counts = f"{r.iterations:>11,}{r.items:>10,}{r.preemptions:>13}"
        print(f"  {r.name:26}{counts}{error:>20}  {r.difference or 'exact'}")
    totals = [sum(getattr(r, name) for r in results) for name in ("iterations", "items", "preemptions")]
    print(f"  {'all':26}{totals[0]:>11,}{totals[1]:>10,}{totals[2]:>13}")


def print_real(results: list[RealResult], failed: dict[str, str]) -> None:
    """Errors in per cent: one line per run, and the medians."""
    print(f"\nReal runs: {len(results)}; errors in per cent of the recorded value, step cost fitted per run")
    print(f"  {'run':26}" + "".join(f"{name:>10}" for name in ERROR_NAMES) + f"{'preemptions':>13}{'recorded':>10}")
    for r in results:
        errors = "".join(f"{100 * r.errors[name]:>10.2f}" for name in ERROR_NAMES)
        print(f"  {r.name:26}{errors}{r.preemptions:>13}{r.recorded_preemptions:>10}  {r.note}".rstrip())
    if results:
        medians = "".join(f"{100 * float(np.median([r.errors[name] for r in results])):>10.2f}" for name in ERROR_NAMES)
        print(f"  {'median':26}{medians}")
    for name, reason in failed.items():
        print(f"  {name:26}not served: {reason}")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    parser.add_argument(
        "--truth", type=Path, default=DEFAULT_TRUTH, help="folder of recorded sets (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print figures as JSON instead of tables")
    options = parser.parse_args(arguments)
    missing = missing_sets(options.truth)
    for name in missing:
        print(f"no recorded runs at {options.truth / name}: skipped", file=sys.stderr)
    virtual = check_virtual(options.truth / VIRTUAL_SET) if VIRTUAL_SET not in missing else []
    real, failed = check_real(options.truth / REAL_SET) if REAL_SET not in missing else ([], {})
    if options.json:
        print(json.dumps(summary(virtual, real), indent=2))
        return 0
    if virtual:
        print_virtual(virtual)
    if real or failed:
        print_real(real, failed)
    return int(len(missing) == len(SETS))


if __name__ == "__main__":
    raise SystemExit(main())
