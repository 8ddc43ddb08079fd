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
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.profiles import load_profile
from llmserve_env.profiles.host import Host, ServedModel, TokenTimes, save_host
from llmserve_env.profiles.host_fitting import DIGITS, MIN_ITERATIONS, IterationLog, fit_host
from llmserve_env.units import PS_PER_MS

WAITED_MS = 0.5
"""A host that waited so long for the iteration before it had launched this one in time: the GPU had all of it to do."""
FRONT_END_MS = np.arange(0.0, 10.0, 0.05)
"""Delays that are tried for the front end."""
SMALL_TOKENS = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 24), (25, 32), (33, 48), (49, 64), (65, 96), (97, 128))
LARGE_TOKENS = ((129, 256), (257, 512), (513, 1000), (1001, 1500), (1501, 2000), (2001, 2048))
"""Iterations by their tokens: decodes alone, and with prefills; kernels change with the size."""
MAX_ANSWER_MS = 100.0
"""A request whose answer seems to take longer was not counted with its own iteration."""


LLAMA_3_8B = ServedModel(name="llama-3-8b", layers=32, kernels_per_layer=10)
"""Its layers: `profiles.composing.kernels` counts their kernels."""


def curve_ms(curve: Curve, x: Array) -> Array:
    """Times of a profile's curve; beyond its last knot the last segment goes on."""
    last = (curve.ps[-1] - curve.ps[-2]) / (curve.x[-1] - curve.x[-2])
    beyond = np.maximum(x - curve.x[-1], 0) * last
    return np.where(x > 0, np.interp(x, curve.x, curve.ps) + beyond, 0.0) / PS_PER_MS


def profile_ms(tier: TierCosts, steps: dict[str, Array]) -> tuple[Array, Array]:
    """GPU time of iterations by the profile, without drafts: (all but decode attention, decode attention)."""
    constants_ps = (
        tier.overhead_ps
        + tier.per_sequence_ps * steps["reqs"]
        + tier.per_decode_token_ps * (steps["tokens"] - steps["prefill_tokens"])
        + tier.per_prefill_token_ps * steps["prefill_tokens"]
    )
    curves_ms = curve_ms(tier.gemm, steps["tokens"]) + curve_ms(tier.prefill_attention, steps["prefill_work"])
    return constants_ps / PS_PER_MS + curves_ms, curve_ms(tier.decode_attention[0], steps["decode_ctx"])


def admissions_of(run: GpuRun) -> Array:
    """Requests that each iteration admitted, preempted ones that came back included.

    Where they were not recorded: every prefill is new, except one that the budget of the iteration before cut short.
    """
    steps = run.steps
    if "new_reqs" in steps:
        return steps["new_reqs"]
    is_cut = np.concatenate([[False], (steps["tokens"] >= run.token_budget)[:-1]])
    admissions: Array = np.maximum(steps["reqs"] - steps["decode_reqs"] - is_cut, 0)
    return admissions


def log_of(run: GpuRun, tier: TierCosts) -> IterationLog:
    """A run's iterations as the fit takes them."""
    steps, admissions = run.steps, admissions_of(run)
    gpu_ms, attention_ms = profile_ms(tier, steps)
    after_idle = (steps["decode_reqs"] == 0) & (steps["running"] == admissions)
    after_idle[0] = True
    return IterationLog(
        scheduled_ms=1e3 * steps["t_sched"],
        sequences=steps["reqs"],
        admissions=admissions,
        tokens=steps["tokens"],
        prefill_tokens=steps["prefill_tokens"],
        graph_max_tokens=int(run.options["cuda_graph_max_tokens"]),
        after_idle=after_idle,
        gpu_ms=gpu_ms,
        decode_attention_ms=attention_ms,
        output_ms=1e3 * (steps["t_output_end"] - steps["t_output"]) if "t_output" in steps else None,
        launch_ms=1e3 * (steps["t_launch_end"] - steps["t_sched"]) if "t_launch_end" in steps else None,
    )


def host_of(runs: Sequence[GpuRun], tier: TierCosts, name: str) -> Host:
    """The host that these runs were served by."""
    fitted = fit_host([log_of(run, tier) for run in runs])
    return Host(
        name=name,
        machine="Intel Xeon beside one H200, 10 million additions in Python in 0.8 s",
        engine="vLLM 0.26.0, AsyncLLM in process",
        provenance=f"python -m benchmarks.recorded_host --save {name}; runs {', '.join(run.name for run in runs)}",
        front_end_ms=round(front_end_ms(runs), 3),
        # The least loaded run shows the client's side alone; in the others answers also wait for each other.
        answer_ms=round(min(float(np.median(answers_ms(run))) for run in runs), 3),
        full_graph=fitted.full_graph,
        piecewise_graph=fitted.piecewise_graph,
        no_graph=fitted.no_graph,
        per_admission_ms=fitted.per_admission_ms,
        output=fitted.output,
        sampling=fitted.sampling,
        decode_attention=fitted.decode_attention,
        served=LLAMA_3_8B if runs[0].model == LLAMA_3_8B.name else None,
    )


def products_of(runs: Sequence[GpuRun], tier: TierCosts, host: Host) -> TokenTimes:
    """GPU time of the engine's products beyond the profile's tier, as medians over iterations of about equal size."""
    tokens, extra = (np.concatenate(part) for part in zip(*(_extra(run, tier, host) for run in runs), strict=True))
    knots, times = [], []
    for low, high in (*SMALL_TOKENS, *LARGE_TOKENS):
        chosen = (tokens >= low) & (tokens <= high)
        if chosen.sum() >= MIN_ITERATIONS:
            # A graph is replayed at its captured size, so a band begins with its first size and ends with its last.
            knots += sorted({low, high})
            times += [round(float(np.median(extra[chosen])), DIGITS)] * len({low, high})
    return TokenTimes(tokens=tuple(knots), ms=tuple(times))


def _extra(run: GpuRun, tier: TierCosts, host: Host) -> tuple[Array, Array]:
    """Tokens, and GPU time beyond the profile's and the host's sampling and attention, of iterations back to back.

    Others began on an idle GPU, so their time contains waiting for the host.
    """
    steps = run.steps
    by_profile, attention = profile_ms(tier, steps)
    sampling = host.sampling.base_ms + host.sampling.per_sequence_ms * steps["reqs"]
    extra = steps["gpu_ms"] - by_profile - host.decode_attention * attention - sampling
    waited_ms = 1e3 * (steps["t_output"][:-1] - steps["t_launch_end"][1:])
    chosen = np.concatenate([[False], waited_ms > WAITED_MS]) & np.isfinite(extra)
    return steps["tokens"][chosen], extra[chosen]


def front_end_ms(runs: Sequence[GpuRun]) -> float:
    """The delay that agrees with most requests: each was visible to one scheduling and not to the one before."""
    at_least, at_most = (np.concatenate(side) for side in zip(*map(_visible_ms, runs), strict=True))
    agree = [np.mean((at_least < delay) & (delay <= at_most)) for delay in FRONT_END_MS]
    return float(FRONT_END_MS[int(np.argmax(agree))])


def _visible_ms(run: GpuRun) -> tuple[Array, Array]:
    """For each request the bounds of its delay; requests are seen in the order in which they were sent."""
    at_s = run.steps["t_sched"]
    seen = np.maximum.accumulate(np.cumsum(admissions_of(run)) + run.steps["waiting"])
    first = np.searchsorted(seen, np.arange(1, len(run.sent_s) + 1))
    known = (first > 0) & (first < len(seen))
    first, sent_s = first[known], run.sent_s[known]
    return 1e3 * (at_s[first - 1] - sent_s), 1e3 * (at_s[first] - sent_s)


def answers_ms(run: GpuRun) -> Array:
    """From the end of the iteration that made a first token until the client had it.

    The output of iteration k is taken in just before k+2 is scheduled. Only requests whose whole prompt was in one
    iteration count.
    """
    steps = run.steps
    admits = np.searchsorted(np.cumsum(admissions_of(run)), np.arange(1, len(run.sent_s) + 1))
    whole = admits + 2 < len(steps["tokens"])
    whole[whole] &= (steps["tokens"] < run.token_budget)[admits[whole]]
    delays = 1e3 * (run.first_token_s[whole] - steps["t_sched"][admits[whole] + 2])
    answers: Array = delays[(delays > 0.0) & (delays < MAX_ANSWER_MS)]
    return answers if len(answers) else np.zeros(1)


def main() -> None:
    """Print the host, or write it among the shipped ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=RECORDINGS, metavar="DIR", help="folder of recorded runs")
    parser.add_argument("--save", metavar="NAME", help="write it to the shipped hosts under this name")
    arguments = parser.parse_args()
    runs = [run for run in read_gpu_runs(arguments.truth) if run.model == LLAMA_3_8B.name]
    tiers = load_profile("h200-141gb.llama-3-8b").costs().tiers
    host = host_of(
        [run for run in runs if run.weights == "bf16"], tiers[TIER_NUMBERS["FP16"]], arguments.save or "recorded"
    )
    timed = [run for run in runs if run.weights == "fp8" and "gpu_ms" in run.steps]
    if timed:
        host = host.model_copy(update={"products": {"FP8": products_of(timed, tiers[TIER_NUMBERS["FP8"]], host)}})
    if arguments.save:
        save_host(host)
    print(json.dumps(host.model_dump(mode="json"), indent=2))


if __name__ == "__main__":
    main()
