"""The recordings of a vLLM on a GPU are whole, and the benchmark simulates what it can of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu_engine import (
    GPU_PARTS,
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
from benchmarks.gpu_recordings import RECORDINGS, GpuRun, read_gpu_runs
from benchmarks.recorded_host import WAITED_MS, admissions_of, front_end_ms, log_of, products_of
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.engine.tiers import TIER_NUMBERS
from llmserve_env.profiles import host_fitting, load_profile
from llmserve_env.profiles.host import load_host
from llmserve_env.profiles.host_fitting import fit_host

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


def test_rounding_does_not_show_in_a_fitted_host(monkeypatch: pytest.MonkeyPatch) -> None:
    # Machines round differently, as do starts that differ in the tenth digit.
    tier = load_profile("h200-141gb.llama-3-8b").costs().tiers[TIER_NUMBERS["FP16"]]
    logs = [log_of(run, tier) for run in RUNS.values() if run.weights == "bf16" and run.name != "s_light_1"]
    found, start = fit_host(logs), np.array(host_fitting.START)
    for seed in (1, 2):
        nearby = start * (1.0 + 1e-10 * np.random.default_rng(seed).standard_normal(len(start)))
        monkeypatch.setattr(host_fitting, "START", tuple(nearby))
        assert fit_host(logs) == found


def test_gpu_times_of_iterations_that_waited_for_their_launch_do_not_count() -> None:
    run, host = RUNS["f_mixed_1"], load_host(SHIPPED_HOST)
    tier = load_profile("h200-141gb.llama-3-8b").costs().tiers[TIER_NUMBERS["FP8"]]
    steps = run.steps
    waited_ms = 1e3 * (steps["t_output"][:-1] - steps["t_launch_end"][1:])
    began_idle = ~np.concatenate([[False], waited_ms > WAITED_MS])
    assert 100 < began_idle.sum() < len(began_idle) - 1_000
    slowed = replace(run, steps={**steps, "gpu_ms": steps["gpu_ms"] + 5.0 * began_idle})
    assert products_of([slowed], tier, host) == products_of([run], tier, host)
    kept_busy = replace(run, steps={**steps, "gpu_ms": steps["gpu_ms"] + 5.0 * ~began_idle})
    assert np.array(products_of([kept_busy], tier, host).ms) == pytest.approx(
        np.array(products_of([run], tier, host).ms) + 5.0
    )


def test_without_gpu_times_an_fp8_run_has_those_of_the_shipped_host_and_launches_of_its_folder() -> None:
    def untimed(name: str) -> GpuRun:
        run = RUNS[name]
        return replace(run, steps={key: column for key, column in run.steps.items() if key != "gpu_ms"})

    runs = [untimed(name) for name in ("f_light_1", "f_mixed_1", "s_light_1", "s_mixed_1", "s_burst_1")]
    host, shipped = host_for(runs[0], runs), load_host(SHIPPED_HOST)
    assert all(getattr(host, part) == getattr(shipped, part) for part in GPU_PARTS)
    assert host.piecewise_graph != shipped.piecewise_graph


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
