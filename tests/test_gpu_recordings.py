"""The recordings of a vLLM on a GPU are whole, and the benchmark simulates what it can of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu_engine import (
    METRICS,
    SHIPPED_HOST,
    changed,
    errors_of,
    host_for,
    largest_pool,
    measure,
    median_abs,
    why_not,
)
from benchmarks.gpu_recordings import RECORDINGS, read_gpu_runs
from benchmarks.recorded_host import admissions_of, front_end_ms
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.profiles.host import load_host

RUNS = {run.name: run for run in read_gpu_runs(RECORDINGS)}


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_is_consistent(name: str) -> None:
    run = RUNS[name]
    assert len(run.sent_s) > 100
    assert np.all(np.diff(run.sent_s) >= 0.0)
    assert np.all(run.sent_s < run.first_token_s)
    assert np.all(run.first_token_s <= run.finish_s)
    assert np.all((run.finish_s > run.first_token_s) == (run.output_tokens > 1))


def test_runs_cover_two_precisions_and_limits_that_change() -> None:
    assert {run.weights for run in RUNS.values()} == {"bf16", "fp8"}
    assert {name for run in RUNS.values() for _, limits in run.changes for name in limits} == {
        "batch_cap",
        "token_budget",
        "blocks",
    }


def test_a_pool_that_is_small_from_the_start_is_the_whole_pool() -> None:
    run = RUNS["s_burst_kv"]
    assert largest_pool(run) == 2_999
    assert changed(ServingKnobs(), {"blocks": 3_000}, largest_pool(run)).kv_budget_fraction == 1.0
    assert largest_pool(RUNS["s_light_1"]) == RUNS["s_light_1"].num_blocks


def test_what_cannot_be_simulated_has_a_reason() -> None:
    assert why_not(RUNS["s_light_1"]) is None
    options = RUNS["f_light_1"].options
    assert why_not(replace(RUNS["f_light_1"], options={**options, "weights": "int2 (a remark)"})) == (
        "no tier with int2 weights"
    )
    assert why_not(replace(RUNS["f_light_1"], options={**options, "model": "Other-1T"})) == (
        "no profile h200-141gb.other-1t"
    )


def test_admissions_follow_from_what_an_iteration_contains() -> None:
    for name in ("s_burst_1", "s_burst_turned", "l_chat_1"):
        run = RUNS[name]
        deduced = admissions_of(replace(run, steps={k: v for k, v in run.steps.items() if k != "new_reqs"}))
        assert np.mean(deduced != run.steps["new_reqs"]) < 0.005


def test_the_front_end_is_found_from_what_each_scheduling_could_see() -> None:
    assert front_end_ms([RUNS["s_light_1"]]) == pytest.approx(1.0, abs=0.3)


def test_a_run_is_never_simulated_beside_a_host_fitted_to_itself() -> None:
    run = RUNS["s_light_1"]
    assert run.name not in host_for(run, list(RUNS.values())).provenance
    assert host_for(run, [run]) == load_host(SHIPPED_HOST)


def test_an_fp8_run_never_sees_its_own_gpu_times() -> None:
    runs = [RUNS[name] for name in ("f_light_1", "f_mixed_1", "s_light_1", "s_mixed_1")]
    light = RUNS["f_light_1"]
    disturbed = replace(light, steps={**light.steps, "gpu_ms": 3.0 * light.steps["gpu_ms"]})
    assert host_for(disturbed, [disturbed, *runs[1:]]) == host_for(light, runs)


def test_with_a_host_the_simulator_is_within_a_few_per_cent() -> None:
    runs, skipped = measure(RECORDINGS)
    assert set(skipped) | {run["run"] for run in runs} == set(RUNS)
    assert all(set(run["errors"]) == set(METRICS) for run in runs)
    median = median_abs([run for run in runs if run["weights"] == "bf16"])
    assert median["ttft_mean"] < 0.07
    assert median["ttft_p95"] < 0.07
    assert median["tpot_mean"] < 0.03
    assert median["e2e_mean"] < 0.04
    assert median["makespan"] < 0.01
    fp8 = median_abs([run for run in runs if run["weights"] == "fp8"])
    assert fp8["tpot_mean"] < 0.05
    assert fp8["e2e_mean"] < 0.06


def test_where_the_gpu_binds_the_simulator_takes_as_long() -> None:
    # Batches that arrive at once keep the GPU busy, so the host hardly shows.
    errors = errors_of(RUNS["s_waves_1"], host_for(RUNS["s_waves_1"], list(RUNS.values())))
    assert abs(errors["e2e_mean"]) < 0.05
    assert abs(errors["makespan"]) < 0.02
