"""Capacity of a recorded workload: where latency crosses its limit, simulated on the very requests of the plan."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.gpu_capacity import (
    CAPACITY_RECORDINGS,
    SLOS,
    Slo,
    capacity_of,
    largest_rate,
    measure,
    planned,
    simulated_figures,
)
from tools.recorder.plans import CAPACITY_PLAN


def test_the_capacity_is_where_the_load_reaches_one() -> None:
    assert largest_rate([10.0, 20.0, 30.0], [0.5, 0.5, 2.0]) == pytest.approx(25.0)
    assert largest_rate([10.0, 20.0], [0.5, 1.0]) == math.inf, "the ladder ends before the limit"
    assert largest_rate([10.0, 20.0], [1.5, 3.0]) == 0.0, "the ladder begins above it"


def test_both_latencies_must_be_kept() -> None:
    slo = Slo(ttft_p95_ms=100.0, tpot_mean_ms=10.0)
    assert slo.load({"ttft_p95": 0.05, "tpot_mean": 0.02}) == pytest.approx(2.0)


def test_the_plan_is_short_and_its_runs_can_be_simulated() -> None:
    assert sum(run.duration_s for run in CAPACITY_PLAN.runs) <= 360
    for run in CAPACITY_PLAN.runs:
        assert len(planned(run).sent_s) == pytest.approx(run.duration_s * run.options["rate_rps"], rel=0.25)


@pytest.mark.parametrize("workload", SLOS)
def test_the_predicted_capacity_lies_within_the_ladder(workload: str) -> None:
    rate, ladder = capacity_of(workload, lambda run: simulated_figures(run, {}))
    rates = [one for one, _ in ladder]
    assert rates[0] < rate < rates[-1]
    assert np.all(np.diff([figures["tpot_mean"] for _, figures in ladder]) > 0.0)


def test_the_capacity_is_what_the_real_engine_carried() -> None:
    # Of each workload beside a host that was fitted to the other one.
    found = measure(CAPACITY_RECORDINGS)
    assert set(found) == set(SLOS)
    for entry in found.values():
        assert abs(entry["error"]) < 0.1
