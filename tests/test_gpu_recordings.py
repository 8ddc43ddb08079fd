"""The recordings of a vLLM on a GPU are whole, and the benchmark simulates what it can of them."""

from __future__ import annotations

from typing import Any

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
    why_not,
)
from benchmarks.gpu_recordings import RECORDINGS, read_gpu_runs
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


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What the benchmark measures, once for all tests."""
    return measure(RECORDINGS)


def test_what_cannot_be_simulated_is_named_with_its_reason(found: dict[str, Any]) -> None:
    assert set(found["skipped"]) | {run["run"] for run in found["runs"]} == set(RUNS)
    assert why_not(RUNS["f_light_1"]) == "no tier with fp8 weights"
    assert set(found["median_abs"]) == set(METRICS)


def test_a_run_is_never_simulated_beside_a_host_fitted_to_itself() -> None:
    run = RUNS["s_light_1"]
    assert run.name not in host_for(run, list(RUNS.values())).provenance
    assert host_for(run, [run]) == load_host(SHIPPED_HOST)


def test_with_a_host_the_simulator_is_within_a_few_per_cent(found: dict[str, Any]) -> None:
    median = found["median_abs"]
    assert median["tpot_mean"] < 0.03
    assert median["e2e_mean"] < 0.05
    assert median["makespan"] < 0.01


def test_where_the_gpu_binds_the_simulator_takes_as_long() -> None:
    # Batches that arrive at once keep the GPU busy, so the host hardly shows.
    errors = errors_of(RUNS["s_waves_1"], host_for(RUNS["s_waves_1"], list(RUNS.values())))
    assert abs(errors["e2e_mean"]) < 0.05
    assert abs(errors["makespan"]) < 0.02
