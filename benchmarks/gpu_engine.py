"""How far the simulator is from a real vLLM on a real GPU: `python -m benchmarks.gpu_engine [--truth DIR] [--json]`.

Every recorded run is simulated with the shipped profile of its GPU and model: same requests, limits and changes of
limits, asynchronous scheduling and prefix caching on, the KV pool as the engine reported it. The host is fitted to the
times at which the other bf16 runs of the folder were scheduled, never to the run itself; where there are too few, the
shipped host is used. Errors are relative, simulated against recorded: negative means that the simulator is too fast.
Latencies are counted from the moment the client sent a request. `median_abs` is over the largest group of runs with one
model and precision.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from benchmarks.markdown import markdown_table
from benchmarks.recorded_host import host_of, products_of
from llmserve_env.arrays import Array
from llmserve_env.engine.deployment import MAX_RUNNING, Deployment
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.host import Host, load_host
from llmserve_env.request_table import RequestTable
from llmserve_env.tasks.defaults import HOST as DEFAULT_HOST
from llmserve_env.units import PS_PER_S, s_to_ps

TIERS = {"bf16": "FP16", "fp8": "FP8"}
"""Weights of a recorded engine -> the tier with the same arithmetic."""
METRICS = ("ttft_p50", "ttft_mean", "ttft_p95", "tpot_mean", "tpot_p95", "e2e_mean", "makespan")
SHIPPED_HOST = "xeon-h200-vllm-0.26-timed"
GPU_PARTS = ("sampling", "decode_attention", "products")
"""Of a host: GPU time that the engine adds, whatever the machine."""
_LONG_AFTER_PS = 100_000 * PS_PER_S


def profile_name(run: GpuRun) -> str:
    """The shipped profile of a run's GPU and model."""
    return f"{str(run.options['gpu']).lower()}.{run.model}"


def why_not(run: GpuRun) -> str | None:
    """Why the simulator cannot express a run; None if it can."""
    try:
        tiers = load_profile(profile_name(run)).tiers
    except ProfileError:
        return f"no profile {profile_name(run)}"
    if TIERS.get(run.weights) not in tiers:
        return f"no tier with {run.weights} weights"
    if int(run.options["max_num_seqs"]) > MAX_RUNNING:
        return f"more than {MAX_RUNNING} running requests"
    return None


def tier_of(run: GpuRun) -> int:
    """The number of the tier that a run's weights stand for."""
    return TIER_NUMBERS[TIERS[run.weights]]


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
        costs=host.gpu_costs(load_profile(profile_name(run)).costs().serving(tier_of(run))),
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
    knobs = ServingKnobs(batch_cap=deployment.max_running, quantization_tier=tier_of(run))
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
    """A host fitted to the other bf16 runs of the model; the shipped one where they are too few.

    A composed profile is beside the default host, whose launches are those of the model. The GPU time of the engine's
    FP8 products is that of the folder's other FP8 runs where it was recorded. In other folders all GPU time beyond the
    profile is the shipped host's, as products take what its sampling and attention leave; CPU times are the folder's.
    """
    profile, shipped = load_profile(profile_name(run)), load_host(SHIPPED_HOST)
    if profile.tiers[TIERS[run.weights]].origin == "composed":
        return load_host(DEFAULT_HOST).for_model(profile.model)
    tiers = profile.costs().tiers
    others = [one for one in runs if one.name != run.name and (one.weights, one.model) == ("bf16", run.model)]
    try:
        host = host_of(others, tiers[TIER_NUMBERS["FP16"]], "other_runs") if others else shipped
    except ProfileError:
        host = shipped
    if run.weights != "fp8":
        return host
    timed = [one for one in runs if one.name != run.name and one.weights == "fp8" and "gpu_ms" in one.steps]
    if timed:
        return host.model_copy(update={"products": {"FP8": products_of(timed, tiers[TIER_NUMBERS["FP8"]], host)}})
    return host.model_copy(update={name: getattr(shipped, name) for name in GPU_PARTS})


def errors_of(run: GpuRun, host: Host) -> dict[str, float]:
    """Relative errors of the simulator, by metric."""
    recorded = metrics_of(run.sent_s, run.first_token_s, run.finish_s, run.output_tokens)
    simulated = simulate(run, host)
    return {name: simulated[name] / recorded[name] - 1.0 for name in METRICS}


def measure(folder: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Errors of every run that can be expressed, and why the others cannot."""
    runs: list[dict[str, Any]] = []
    skipped = {}
    recorded = read_gpu_runs(folder)
    for run in recorded:
        reason = why_not(run)
        if reason is None:
            names = {name: run.options[name] for name in ("run", "weights", "model")}
            runs.append({**names, "errors": errors_of(run, host_for(run, recorded))})
        else:
            skipped[run.name] = reason
    return runs, skipped


def group_of(run: Mapping[str, Any]) -> str:
    """Model and precision of a measured run."""
    return f"{run['model']} {run['weights']}"


def grouped(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Measured runs by model and precision, the largest group first."""
    sizes = Counter(map(group_of, runs))
    return {name: [run for run in runs if group_of(run) == name] for name, _ in sizes.most_common()}


def median_abs(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Medians of the absolute errors, by metric."""
    return {name: float(np.median([abs(run["errors"][name]) for run in runs])) for name in METRICS}


def main() -> None:
    """Print the errors, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--truth", type=Path, default=RECORDINGS, metavar="DIR", help="folder of recorded runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    runs, skipped = measure(arguments.truth)
    groups = grouped(runs)
    if arguments.json:
        medians = median_abs(next(iter(groups.values()))) if groups else {}
        print(json.dumps({"runs": runs, "median_abs": medians}))
    else:
        print_table(groups)
    for reason in dict.fromkeys(skipped.values()):
        names = ", ".join(name for name, why in skipped.items() if why == reason)
        print(f"\nNot simulated, {reason}: {names}.", file=sys.stderr if arguments.json else sys.stdout)


def print_table(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """One row per run, and the medians of each group after its runs."""
    rows = []
    for group, runs in groups.items():
        rows += [[run["run"], *(f"{run['errors'][name]:+.1%}" for name in METRICS)] for run in runs]
        medians = median_abs(runs)
        rows.append([f"**median, {group}**", *(f"{medians[name]:.1%}" for name in METRICS)])
    print(markdown_table(["run", *(name.replace("_", " ") for name in METRICS)], rows))


if __name__ == "__main__":
    main()
