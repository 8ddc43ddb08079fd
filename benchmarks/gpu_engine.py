"""How far the simulator is from a real vLLM on a real GPU: `python -m benchmarks.gpu_engine [--truth DIR] [--json]`.

Every recorded run is simulated with the shipped profile of its GPU and model: same requests, limits and changes of
limits, asynchronous scheduling and prefix caching on, the KV pool as the engine reported it. The host is fitted to the
iterations of the other bf16 runs of the folder, never to the run itself; where a folder does not time its launches, the
shipped host is used. Errors are relative, simulated against recorded: negative means that the simulator is too fast.
Latencies are counted from the moment the client sent a request.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from benchmarks.markdown import markdown_table
from benchmarks.recorded_host import host_of
from llmserve_env.arrays import Array
from llmserve_env.engine.deployment import Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.layout import MAX_RUNNING
from llmserve_env.profiles import list_profiles, load_profile
from llmserve_env.profiles.host import Host, load_host
from llmserve_env.request_table import RequestTable
from llmserve_env.units import PS_PER_S, s_to_ps

TIERS = {"bf16": 0}
"""Weights of a recorded engine -> the profile's tier with the same arithmetic."""
METRICS = ("ttft_p50", "ttft_mean", "ttft_p95", "tpot_mean", "tpot_p95", "e2e_mean", "makespan")
SHIPPED_HOST = "xeon-h200-vllm-0.26"
_LONG_AFTER_PS = 100_000 * PS_PER_S


def profile_name(run: GpuRun) -> str:
    """The shipped profile of a run's GPU and model."""
    return f"{str(run.options['gpu']).lower()}.{run.model}"


def why_not(run: GpuRun) -> str | None:
    """Why the simulator cannot express a run; None if it can."""
    if profile_name(run) not in list_profiles():
        return f"no profile {profile_name(run)}"
    if run.weights not in TIERS:
        return f"no tier with {run.weights} weights"
    if int(run.options["max_num_seqs"]) > MAX_RUNNING:
        return f"more than {MAX_RUNNING} running requests"
    return None


def metrics_of(sent_s: Array, first_token_s: Array, finish_s: Array, output_tokens: Array) -> dict[str, float]:
    """Latencies of a run in seconds; time per output token is a request's mean over the tokens after its first."""
    ttft, several = first_token_s - sent_s, output_tokens > 1
    tpot = (finish_s - first_token_s)[several] / (output_tokens[several] - 1)
    return {
        "ttft_p50": float(np.quantile(ttft, 0.5)),
        "ttft_mean": float(ttft.mean()),
        "ttft_p95": float(np.quantile(ttft, 0.95)),
        "tpot_mean": float(tpot.mean()),
        "tpot_p95": float(np.quantile(tpot, 0.95)),
        "e2e_mean": float((finish_s - sent_s).mean()),
        "makespan": float(finish_s.max() - sent_s.min()),
    }


def simulate(run: GpuRun, host: Host) -> dict[str, float]:
    """The same metrics from the simulator, beside this host."""
    return metrics_of(run.sent_s, *simulated_times(run, host), run.output_tokens)


def simulated_times(run: GpuRun, host: Host) -> tuple[Array, Array]:
    """First and last token of every request in seconds, from the simulator beside this host."""
    deployment = Deployment(
        costs=load_profile(profile_name(run)).costs(),
        block_tokens=int(run.options["block_size"]),
        max_running=int(run.options["max_num_seqs"]),
        token_budget=int(run.options["max_num_batched_tokens"]),
        max_model_len=int(run.options["max_model_len"]),
        prefix_caching=True,
        async_scheduling=True,
        host=host.costs(),
        graph_max_tokens=int(run.options["cuda_graph_max_tokens"]),
        num_blocks_override=largest_pool(run),
    )
    sent_ps = [s_to_ps(at_s) for at_s in run.sent_s]
    engine = Engine(deployment, RequestTable.of(sent_ps, run.prompt_tokens, run.output_tokens), 0)
    knobs = ServingKnobs(batch_cap=deployment.max_running, quantization_tier=TIERS[run.weights])
    for second, limits in run.changes:
        if second > 0.0:
            engine.serve(knobs, s_to_ps(second))
        knobs = changed(knobs, limits, largest_pool(run))
    engine.serve(knobs, _LONG_AFTER_PS)
    progress = engine.request_records()
    return progress["first_token_at_ps"] / PS_PER_S, progress["finished_at_ps"] / PS_PER_S


def largest_pool(run: GpuRun) -> int:
    """Most KV blocks that a run ever had: those of the engine, unless it began with fewer and never got more."""
    given = [(second, limits["blocks"] - 1) for second, limits in run.changes if "blocks" in limits]
    from_the_start = any(second <= 0.0 for second, _ in given)
    return max([blocks for _, blocks in given] + ([] if from_the_start else [run.num_blocks]))


def changed(knobs: ServingKnobs, limits: Mapping[str, int], num_blocks: int) -> ServingKnobs:
    """The knobs with the limits that a run changed; a smaller pool is a share of the largest."""
    given: dict[str, Any] = {name: limits[name] for name in ("batch_cap", "token_budget") if name in limits}
    if "blocks" in limits:
        given["kv_budget_fraction"] = (limits["blocks"] - 1) / num_blocks
    return replace(knobs, **given)


def host_for(run: GpuRun, runs: Sequence[GpuRun]) -> Host:
    """A host fitted to the other bf16 runs of the folder; the shipped one where they do not time their launches."""
    others = [one for one in runs if one.name != run.name and one.weights == "bf16" and one.steps]
    if not others:
        return load_host(SHIPPED_HOST)
    return host_of(others, load_profile(profile_name(run)).costs().tiers[TIERS["bf16"]], "other_runs")


def errors_of(run: GpuRun, host: Host) -> dict[str, float]:
    """Relative errors of the simulator, by metric."""
    recorded = metrics_of(run.sent_s, run.first_token_s, run.finish_s, run.output_tokens)
    simulated = simulate(run, host)
    return {name: simulated[name] / recorded[name] - 1.0 for name in METRICS}


def measure(folder: Path) -> dict[str, Any]:
    """Errors of every run that can be expressed, their medians, and why the others cannot."""
    runs: list[dict[str, Any]] = []
    skipped = {}
    recorded = read_gpu_runs(folder)
    for run in recorded:
        reason = why_not(run)
        if reason is None:
            errors = errors_of(run, host_for(run, recorded))
            runs.append({"run": run.name, "weights": run.weights, "model": run.model, "errors": errors})
        else:
            skipped[run.name] = reason
    medians = {name: float(np.median([abs(r["errors"][name]) for r in runs])) for name in METRICS} if runs else {}
    return {"runs": runs, "median_abs": medians, "skipped": skipped}


def main() -> None:
    """Print the errors, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, default=RECORDINGS, metavar="DIR", help="folder of recorded runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.truth)
    if arguments.json:
        print(json.dumps(found))
        return
    rows = [[r["run"], *(f"{r['errors'][name]:+.1%}" for name in METRICS)] for r in found["runs"]]
    rows.append(["**median of absolute errors**", *(f"{found['median_abs'][name]:.1%}" for name in METRICS)])
    print(markdown_table(["run", *(name.replace("_", " ") for name in METRICS)], rows))
    for reason in dict.fromkeys(found["skipped"].values()):
        names = ", ".join(name for name, why in found["skipped"].items() if why == reason)
        print(f"\nNot simulated, {reason}: {names}.")


if __name__ == "__main__":
    main()
