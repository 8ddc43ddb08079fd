"""Capacity and attainment against a real vLLM on an H200: `python -m benchmarks.gpu_capacity [--predict]`.

Attainment: for every recorded run that the simulator can express, the share of requests within SLOs of TTFT and of
TPOT, recorded and simulated. The SLOs are round figures of the kind that contracts name, the same for every run.

Capacity: the largest rate at which TTFT p95 and mean TPOT keep their limits, for two workloads recorded at a ladder of
rates (`tools/recorder/plans.py`, engine `capacity`). Between two recorded rates the latency is interpolated. The
simulator serves the same requests; `--predict` prints its answer alone, which needs no recording.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_engine import host_for, metrics_of, simulated_times, why_not
from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from benchmarks.markdown import markdown_table
from llmserve_env.arrays import Array
from tools.recorder.plans import CAPACITY_PLAN, Run
from tools.recorder.traffic import draw

CAPACITY_RECORDINGS = RECORDINGS.parent / "h200_capacity"
SLOS_MS = {"TTFT": (200.0, 500.0, 1_000.0, 2_000.0), "TPOT": (20.0, 30.0, 50.0, 100.0)}
"""SLOs of the attainment table."""
WITHIN = 0.03
KV_BLOCKS = 56_080
"""Of the planned engine; a recording reports its own."""


@dataclass(frozen=True, slots=True)
class Slo:
    """What a workload promises, in milliseconds."""

    ttft_p95_ms: float
    tpot_mean_ms: float

    def load(self, figures: dict[str, float]) -> float:
        """The larger of the two latencies over its limit: up to 1 the SLO is kept."""
        return max(1e3 * figures["ttft_p95"] / self.ttft_p95_ms, 1e3 * figures["tpot_mean"] / self.tpot_mean_ms)


SLOS = {"chat": Slo(ttft_p95_ms=500.0, tpot_mean_ms=40.0), "light": Slo(ttft_p95_ms=300.0, tpot_mean_ms=13.0)}
"""By workload: one is bound by the wait for a first token, the other by the speed of streams."""


Attained = tuple[str, str, float, float, float]
"""Run, latency, SLO in milliseconds, recorded share, simulated share."""


def attainment_rows(folder: Path) -> list[Attained]:
    """Shares of every run within every SLO."""
    rows = []
    recorded = read_gpu_runs(folder)
    for run in (one for one in recorded if why_not(one) is None):
        real = latencies_ms(run, run.first_token_s, run.finish_s)
        simulated = latencies_ms(run, *simulated_times(run, host_for(run, recorded)))
        for name, slos_ms in SLOS_MS.items():
            for slo_ms in slos_ms:
                kept, predicted = (float(np.mean(one[name] <= slo_ms)) for one in (real, simulated))
                rows.append((run.name, name, slo_ms, kept, predicted))
    return rows


def latencies_ms(run: GpuRun, first_token_s: Array, finish_s: Array) -> dict[str, Array]:
    """TTFT and TPOT of every request that has them."""
    several = run.output_tokens > 1
    tpot = (finish_s - first_token_s)[several] / (run.output_tokens[several] - 1)
    return {"TTFT": 1e3 * (first_token_s - run.sent_s), "TPOT": 1e3 * tpot}


def planned(run: Run) -> GpuRun:
    """A run of the plan as if it had been recorded, without its results."""
    traffic = draw(run.traffic, run.seed, run.duration_s, run.options)
    plan, unknown = CAPACITY_PLAN, np.full(len(traffic), np.nan)
    options = {
        "model": plan.model,
        "weights": "bf16",
        "gpu": "H200-141GB",
        "max_num_seqs": plan.max_num_seqs,
        "max_num_batched_tokens": plan.max_num_batched_tokens,
        "max_model_len": plan.max_model_len,
        "cuda_graph_max_tokens": min(2 * plan.max_num_seqs, 512),
        "num_blocks": KV_BLOCKS,
        "block_size": 16,
        "changes": [],
    }
    sent_s, prompts, outputs = traffic.arrival_s, traffic.prompt_tokens, traffic.output_tokens
    return GpuRun(run.name, options, sent_s, prompts, outputs, unknown, unknown, {})


def largest_rate(rates_rps: Sequence[float], loads: Sequence[float]) -> float:
    """The rate at which the load reaches 1, between the last rate that keeps the SLO and the first that does not.

    Infinite (or 0) where every (or no) rate keeps it: the ladder is too short to say.
    """
    kept = [load <= 1.0 for load in loads]
    if all(kept):
        return float("inf")
    first = kept.index(False)
    if first == 0:
        return 0.0
    # Latencies grow exponentially near saturation, so the crossing is interpolated in their logarithm.
    below, above = np.log(loads[first - 1]), np.log(loads[first])
    share = -below / (above - below)
    return float(rates_rps[first - 1] + share * (rates_rps[first] - rates_rps[first - 1]))


Figures = Callable[[Run], dict[str, float]]


def capacity_of(workload: str, figures: Figures) -> tuple[float, list[tuple[float, dict[str, float]]]]:
    """The largest rate that keeps the workload's SLO, and the figures of every rate of the ladder."""
    runs = [run for run in CAPACITY_PLAN.runs if run.traffic == workload]
    found = [(float(run.options["rate_rps"]), figures(run)) for run in runs]
    return largest_rate([rate for rate, _ in found], [SLOS[workload].load(one) for _, one in found]), found


def simulated_figures(run: Run, recorded: dict[str, GpuRun]) -> dict[str, float]:
    """Latencies of a planned run in the simulator; of the requests as they were really sent, where it was recorded.

    The host is fitted to the recorded runs of the other workloads, so nothing is predicted from itself.
    """
    given = recorded.get(run.name) or planned(run)
    others = [one for one in recorded.values() if one.options["traffic"]["traffic"] != run.traffic]
    times = simulated_times(given, host_for(given, others))
    return metrics_of(given.sent_s, *times, given.output_tokens)


def recorded_figures(run: Run, recorded: dict[str, GpuRun]) -> dict[str, float]:
    """Latencies of a run as it was recorded."""
    one = recorded[run.name]
    return metrics_of(one.sent_s, one.first_token_s, one.finish_s, one.output_tokens)


def measure(folder: Path | None) -> dict[str, Any]:
    """Capacity of both workloads, simulated and (with a folder of recordings) recorded."""
    recorded = {} if folder is None else {run.name: run for run in read_gpu_runs(folder)}
    found: dict[str, Any] = {}
    for workload in SLOS:
        simulated, ladder = capacity_of(workload, lambda run: simulated_figures(run, recorded))
        entry: dict[str, Any] = {"simulated_rps": simulated, "simulated": ladder}
        if folder is not None:
            entry["recorded_rps"], entry["recorded"] = capacity_of(
                workload, lambda run: recorded_figures(run, recorded)
            )
            entry["error"] = simulated / entry["recorded_rps"] - 1.0
        found[workload] = entry
    return found


def capacity_text(found: dict[str, Any]) -> str:
    """The ladders as a table, with the capacities below it."""
    rows, said = [], []
    for workload, entry in found.items():
        for i, (rate, simulated) in enumerate(entry["simulated"]):
            row = [workload, f"{rate:g}", *_cells(simulated)]
            rows.append([*row, *(_cells(entry["recorded"][i][1]) if "recorded" in entry else [])])
        slo = SLOS[workload]
        real = f", recorded {entry['recorded_rps']:.1f} ({entry['error']:+.1%})" if "recorded" in entry else ""
        said.append(
            f"`{workload}`, TTFT p95 ≤ {slo.ttft_p95_ms:g} ms and mean TPOT ≤ {slo.tpot_mean_ms:g} ms: "
            f"simulated capacity {entry['simulated_rps']:.1f} requests/s{real}."
        )
    header = ["workload", "requests/s", "TTFT p95", "mean TPOT"]
    if any("recorded" in entry for entry in found.values()):
        header += ["recorded TTFT p95", "recorded mean TPOT"]
    return "\n\n".join([markdown_table(header, rows), *said])


def _cells(figures: dict[str, float]) -> list[str]:
    return [f"{1e3 * figures['ttft_p95']:.0f} ms", f"{1e3 * figures['tpot_mean']:.2f} ms"]


def attainment_text(rows: Sequence[Attained]) -> str:
    """Shares at the SLO where the two differ most, per run and latency."""
    names = dict.fromkeys((run, latency) for run, latency, *_ in rows)
    worst = {key: max((r for r in rows if r[:2] == key), key=lambda r: abs(r[4] - r[3])) for key in names}
    table = [
        [run, latency, f"{slo_ms:g} ms", f"{real:.1%}", f"{simulated:.1%}", f"{100 * (simulated - real):+.1f}"]
        for run, latency, slo_ms, real, simulated in worst.values()
    ]
    within = np.mean([abs(r[4] - r[3]) <= WITHIN for r in rows])
    header = ["run", "latency", "SLO of largest difference", "recorded", "simulated", "points"]
    return f"{markdown_table(header, table)}\n\nWithin {100 * WITHIN:g} points: {within:.0%} of {len(rows)} shares."


def main() -> None:
    """Print both tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, default=RECORDINGS, metavar="DIR", help="recorded runs")
    parser.add_argument("--capacity", type=Path, default=CAPACITY_RECORDINGS, metavar="DIR", help="recorded ladders")
    parser.add_argument("--predict", action="store_true", help="the simulator's capacities alone")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    capacity = measure(None if asked.predict or not asked.capacity.is_dir() else asked.capacity)
    if asked.json:
        print(json.dumps({"capacity": capacity, "attainment": [] if asked.predict else attainment_rows(asked.truth)}))
        return
    print(capacity_text(capacity))
    if not asked.predict:
        print(f"\n{attainment_text(attainment_rows(asked.truth))}")


if __name__ == "__main__":
    main()
