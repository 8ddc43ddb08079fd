"""Do recordings of one's own server improve a composed profile? `python -m benchmarks.fitted_profiles`.

Iterations: a profile is fitted to all recorded runs of a folder but one, and predicts the GPU times of that one.
Results: of every deployment with enough published rows, half become result files of `vllm bench serve`, to which the
composed profile is scaled; the other half are predicted by that profile and by the composed one, both beside the host
that other deployments suggest. What a fit to results was given already contains the host's part.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.closed_loop import LoopResult
from benchmarks.gpu_engine import TIERS, profile_name
from benchmarks.gpu_recordings import read_gpu_runs
from benchmarks.markdown import markdown_table
from benchmarks.published import DEFAULT_CASES, hosts_of_others, play, playable
from benchmarks.published_cases import Case, read_cases
from benchmarks.published_host import PublishedHost
from llmserve_env.arrays import Array
from llmserve_env.profiles import Profile, load_profile
from llmserve_env.profiles.calibration import calibrate, fit_iterations, predicted_ms
from llmserve_env.profiles.engine_results import read_bench, read_iterations
from llmserve_env.profiles.serving import served_profile

RECORDINGS = Path(__file__).resolve().parent.parent / "recordings" / "h200_experts"
MIN_ROWS = 8
"""Of a deployment, for half of them to say something."""
COMPLETED = 1000
DATE = "2026-11-16"


def main() -> None:
    """Print the errors of both profiles on what neither was given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, default=DEFAULT_CASES, help="CSV of published rows")
    parser.add_argument("--recordings", type=Path, default=RECORDINGS, help="folder of recorded iterations")
    arguments = parser.parse_args()
    print(iterations_table(arguments.recordings))
    if arguments.cases.is_file():
        print("\n" + results_table(playable(read_cases(arguments.cases)[0])[0]))
    else:
        print(f"\nno cases at {arguments.cases}: give a CSV with --cases")


def iterations_table(folder: Path) -> str:
    """Errors of GPU times on every run, fitted to the others."""
    rows = []
    runs = read_gpu_runs(folder)
    for run in runs:
        base, tier = load_profile(profile_name(run)), TIERS[run.weights]
        own = read_iterations(folder, tier, run.name)
        others = [i for other in runs if other.name != run.name for i in read_iterations(folder, tier, other.name)]
        fitted = fit_iterations(base, tier, others, f"{base.name}-fitted", DATE)
        times = np.array([iteration.ms for iteration in own])
        errors = [np.abs(np.array(predicted_ms(profile, tier, own)) / times - 1.0) for profile in (base, fitted)]
        rows.append([run.name, base.name, str(len(own)), *map(_text, errors)])
    return markdown_table(["run", "profile", "iterations", "GPU time, composed", "GPU time, fitted"], rows)


def results_table(cases: Sequence[Case]) -> str:
    """Errors of the time per output token on every second row of a deployment, fitted to the others."""
    hosts = hosts_of_others(cases)
    rows, errors = [], []
    for group in dict.fromkeys(case.group for case in cases):
        own = sorted((c for c in cases if c.group == group), key=lambda c: (c.load.prompt_tokens, c.load.concurrency))
        if len(own) >= MIN_ROWS:
            found = compare(own, hosts[own[0].group, own[0].is_async])
            errors.append(found)
            gpus = f"{own[0].served.gpus} x {own[0].system}"
            rows.append([own[0].model, gpus, own[0].precision, str(len(found)), *map(_text, found.T)])
    rows.append(["all", "", "", str(sum(map(len, errors))), *map(_text, np.concatenate(errors).T)])
    return markdown_table(["model", "GPUs", "precision", "rows predicted", "TPOT, composed", "TPOT, fitted"], rows)


def compare(own: Sequence[Case], host: PublishedHost) -> Array:
    """Absolute errors of TPOT on every second row: (composed, fitted to the others)."""
    fitted = fitted_profile(own[::2])
    without = replace(host, iteration_ms=0.0, per_sequence_ms=0.0)
    plays = [(case, play(case, host), play(case, without, fitted)) for case in own[1::2]]
    return np.array([[_error(case, composed), _error(case, scaled)] for case, composed, scaled in plays])


def fitted_profile(cases: Sequence[Case]) -> Profile:
    """The composed profile of a deployment, scaled to result files of these rows."""
    tier = cases[0].served.weights
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.json" for number in range(len(cases))]
        for path, case in zip(paths, cases, strict=True):
            path.write_text(json.dumps(bench_result(case)), encoding="utf-8")
        observations = [observation for path in paths for observation in read_bench(path, tier)]
    base = served_profile(cases[0].gpu, cases[0].served)
    return calibrate(base, tier, observations, f"{base.name}-fitted", DATE)[0]


def bench_result(case: Case) -> dict[str, float]:
    """A row as `vllm bench serve --max-concurrency` would have written it."""
    mean = (1.0 + case.load.shortest) / 2
    return {
        "max_concurrency": case.load.concurrency,
        "completed": COMPLETED,
        "total_input_tokens": round(COMPLETED * mean * case.load.prompt_tokens),
        "total_output_tokens": round(COMPLETED * mean * case.load.output_tokens),
        "mean_tpot_ms": case.tpot_ms,
        "median_ttft_ms": case.ttft_ms,
    }


def _error(case: Case, found: LoopResult) -> float:
    return abs(found.tpot_ms / case.tpot_ms - 1.0)


def _text(errors: Array) -> str:
    return f"{np.median(errors):.1%} ({np.percentile(errors, 90):.0%})"


if __name__ == "__main__":
    main()
