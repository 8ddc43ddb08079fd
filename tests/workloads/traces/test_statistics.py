from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.workloads.traces.statistics import (
    bands,
    clock_step_s,
    dependence,
    dispersion,
    measure,
    rate_over_time,
    spread_over_clock,
    tenants,
    window_counts,
)
from tests.workloads.traces.conftest import Loader

times = st.lists(st.floats(0.0, 100.0, allow_nan=False), min_size=1, max_size=60).map(lambda t: np.sort(np.array(t)))


@given(times, st.sampled_from([0.1, 1.0, 7.0]))
def test_counts_are_those_of_counting_one_by_one(arrival_s: np.ndarray, window_s: float) -> None:
    counts = window_counts(arrival_s, window_s, 100.0)
    naive = [0] * int(100.0 / window_s)
    for at_s in arrival_s:
        if at_s < len(naive) * window_s:
            naive[min(int(at_s / window_s), len(naive) - 1)] += 1
    assert counts.tolist() == naive


def test_evenly_spaced_arrivals_have_no_dispersion_and_poisson_has_one() -> None:
    even = dispersion(np.arange(0.05, 1000.0, 0.1), 1, 1000.0)
    assert (even.idc, even.cv, even.peak_rps) == (0.0, 0.0, 10.0)
    rng = np.random.default_rng(0)
    poisson = np.sort(rng.uniform(0.0, 5000.0, 50_000))
    assert dispersion(poisson, 10, 5000.0).idc == pytest.approx(1.0, abs=0.15)


def test_windows_that_do_not_fit_twice_are_left_out() -> None:
    figures = measure(np.linspace(0.0, 30.0, 50), np.full(50, 3), np.full(50, 4), 30.0)
    assert list(figures.dispersion) == [1, 10]
    assert figures.mean_rps == pytest.approx(50 / 30)
    assert figures.prompt_tokens[99] == 3.0


def test_a_single_request_can_be_measured(trace_of: Loader) -> None:
    trace = trace_of(arrival_s=[7], prompt_tokens=[3], output_tokens=[4])
    width_s, rates = rate_over_time(trace)
    assert (width_s, rates.tolist()) == (1.0, [1.0])


def test_bands_explain_what_a_correlation_does_not() -> None:
    rng = np.random.default_rng(1)
    prompt = rng.integers(1, 1000, 5000)
    output = np.where(np.abs(prompt - 500) < 250, 400, 10) + rng.integers(0, 5, 5000)
    found = dependence(prompt, output)
    assert abs(found.log_correlation) < 0.5
    assert found.explained_by_band > 0.75
    assert dependence(np.full(9, 5), np.arange(1, 10)).explained_by_band == 0.0


def test_bands_of_few_distinct_prompts_do_not_repeat() -> None:
    assert bands(np.array([5] * 90 + [7] * 10)).tolist() == [5]
    assert bands(np.full(50, 3)).tolist() == []


def test_a_coarse_clock_is_seen_and_its_stamps_spread() -> None:
    stamps = np.repeat(np.arange(0.0, 300.0, 3.0), 10)
    assert clock_step_s(stamps) == 3.0
    spread = spread_over_clock(stamps)
    assert clock_step_s(spread) == 0.0
    assert np.all(np.diff(spread) >= 0.0) and spread[-1] <= stamps[-1]
    fine = np.sort(np.random.default_rng(2).uniform(0.0, 100.0, 500))
    assert spread_over_clock(fine) is fine


def test_tenants_have_shares_and_their_own_variation(trace_of: Loader) -> None:
    steady = np.arange(0.0, 100.0, 1.0)
    bursty = np.concatenate([start + np.arange(10) * 0.01 for start in (5.0, 50.0)])
    arrival = np.concatenate((steady, bursty))
    order = np.argsort(arrival)
    names = np.array(["steady"] * len(steady) + ["bursty"] * len(bursty))
    trace = trace_of(
        arrival_s=arrival[order],
        prompt_tokens=np.full(len(order), 2),
        output_tokens=np.full(len(order), 3),
        tenant=names[order],
    )
    first, second = tenants(trace, 5)
    assert (first.name, second.name) == ("steady", "bursty")
    assert first.share == pytest.approx(100 / 120)
    assert first.gap_cv == pytest.approx(0.0, abs=1e-6)
    assert second.gap_cv > 3.0
