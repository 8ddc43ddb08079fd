"""The host of recorded GPU runs: `python -m benchmarks.recorded_host [--truth DIR] [--save NAME]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from llmserve_env.arrays import Array
from llmserve_env.engine.costs import Curve, TierCosts
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.host import Host, save_host
from llmserve_env.profiles.host_fitting import HostIterations, fit_host
from llmserve_env.units import PS_PER_MS

QUIETEST = 0.02
"""Share of the requests that found the engine waiting for them: their delay is the front end's alone."""


def curve_ms(curve: Curve, x: Array) -> Array:
    """Times of a profile's curve; beyond its last knot the last segment goes on."""
    last = (curve.ps[-1] - curve.ps[-2]) / (curve.x[-1] - curve.x[-2])
    beyond = np.maximum(x - curve.x[-1], 0) * last
    return np.where(x > 0, np.interp(x, curve.x, curve.ps) + beyond, 0.0) / PS_PER_MS


def profile_ms(tier: TierCosts, run: GpuRun) -> Array:
    """GPU time of a run's iterations by the profile, without drafts."""
    steps = run.steps
    decodes = steps["tokens"] - steps["prefill_tokens"]
    constants_ps = (
        tier.overhead_ps
        + tier.per_sequence_ps * steps["reqs"]
        + tier.per_decode_token_ps * decodes
        + tier.per_prefill_token_ps * steps["prefill_tokens"]
    )
    curves_ms = (
        curve_ms(tier.gemm, steps["tokens"])
        + curve_ms(tier.decode_attention[0], steps["decode_ctx"])
        + curve_ms(tier.prefill_attention, steps["prefill_work"])
    )
    total: Array = constants_ps / PS_PER_MS + curves_ms
    return total


def host_of(runs: Sequence[GpuRun], tier: TierCosts, name: str) -> Host:
    """The host that these runs were served by."""

    def column(*names: str) -> list[Array]:
        return [np.concatenate([run.steps[one] for run in runs]) for one in names]

    sequences, admissions, tokens, prefill, scheduled, launched, taken, ended, gpu_ms = column(
        "reqs", "new_reqs", "tokens", "prefill_tokens", "t_sched", "t_launch_end", "t_output", "t_output_end", "gpu_ms"
    )
    graph = [np.full(len(run.steps["reqs"]), run.options["cuda_graph_max_tokens"]) for run in runs]
    by_profile = np.concatenate([profile_ms(tier, run) for run in runs])
    fitted = fit_host(
        HostIterations(
            sequences,
            admissions,
            tokens,
            prefill,
            np.concatenate(graph),
            1e3 * (launched - scheduled),
            1e3 * (ended - taken),
            gpu_ms - by_profile,
        )
    )
    delays = [delays_ms(run) for run in runs]
    # The least loaded run shows the client's side alone; in the others outputs also wait for each other.
    front_end = min(float(np.quantile(before, QUIETEST)) for before, _ in delays)
    answer = min(float(np.median(after)) for _, after in delays)
    return Host(
        name=name,
        machine="Intel Xeon beside one H200, 10 million additions in Python in 0.8 s",
        engine="vLLM 0.26.0, AsyncLLM in process",
        provenance=f"python -m benchmarks.recorded_host --save {name}; runs {', '.join(run.name for run in runs)}",
        front_end_ms=round(front_end, 3),
        answer_ms=round(answer, 3),
        full_graph=fitted.full_graph,
        piecewise_graph=fitted.piecewise_graph,
        no_graph=fitted.no_graph,
        per_admission_ms=fitted.per_admission_ms,
        output=fitted.output,
        sampling=fitted.sampling,
    )


def delays_ms(run: GpuRun) -> tuple[Array, Array]:
    """(from sending a request to the scheduling that admits it, from its last output to the client)."""
    steps = run.steps
    admits = steps["new_reqs"] > 0
    total = np.cumsum(steps["new_reqs"][admits])
    # Requests are admitted in the order in which they came, so the n-th admission is the n-th request.
    rows = np.searchsorted(total, np.arange(1, len(run.sent_s) + 1))
    known = rows < len(total)
    before = 1e3 * (steps["t_sched"][admits][rows[known]] - run.sent_s[known])
    last = np.searchsorted(steps["t_output_end"], run.finish_s) - 1
    after = 1e3 * (run.finish_s - steps["t_output_end"][np.maximum(last, 0)])
    return before[before > 0.0], after[last >= 0]


def main() -> None:
    """Print the host, or write it among the shipped ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=RECORDINGS, metavar="DIR", help="folder of recorded runs")
    parser.add_argument("--save", metavar="NAME", help="write it to the shipped hosts under this name")
    arguments = parser.parse_args()
    runs = [run for run in read_gpu_runs(arguments.truth) if run.weights == "bf16" and run.steps]
    tier = load_profile("h200-141gb.llama-3-8b").costs().tiers[0]
    host = host_of(runs, tier, arguments.save or "recorded")
    if arguments.save:
        save_host(host)
    print(json.dumps(host.model_dump(mode="json"), indent=2))


if __name__ == "__main__":
    main()
