"""Laws of the arrival processes, over many seeds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from llmserve_env.units import PS_PER_S
from llmserve_env.workloads import sample, schedule
from llmserve_env.workloads.spec import WorkloadSpec
from tests.workloads.specs import workload

SEEDS = range(60)


def times_s(spec: WorkloadSpec, seed: int) -> npt.NDArray[np.float64]:
    result: npt.NDArray[np.float64] = sample(spec, seed).arrival_at_ps / PS_PER_S
    return result


def mean_count(spec: WorkloadSpec) -> float:
    return float(np.mean([len(sample(spec, seed)) for seed in SEEDS]))


def dispersion(spec: WorkloadSpec, window_s: int) -> float:
    """Index of dispersion of the counts of windows of this length."""
    edges = np.arange(0, spec.horizon_s + 1, window_s)
    counts = np.concatenate([np.histogram(times_s(spec, seed), edges)[0] for seed in SEEDS])
    return float(counts.var() / counts.mean())


def test_poisson_has_its_rate_and_exponential_gaps() -> None:
    spec = workload({"kind": "poisson", "rate_rps": 20})
    gaps = np.concatenate([np.diff(times_s(spec, seed)) for seed in SEEDS])
    assert mean_count(spec) == pytest.approx(4000, rel=0.01)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.02)
    assert np.mean(gaps > 0.05) == pytest.approx(np.exp(-1.0), abs=0.01)
    assert dispersion(spec, 1) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0, 4.0])
def test_gamma_has_its_rate_and_its_variation(cv: float) -> None:
    spec = workload({"kind": "gamma", "rate_rps": 20, "cv": cv})
    gaps = np.concatenate([np.diff(times_s(spec, seed)) for seed in SEEDS])
    assert mean_count(spec) == pytest.approx(4000, rel=0.005 + 0.02 * cv)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_bursty_gaps_start_in_their_steady_state() -> None:
    spec = workload({"kind": "gamma", "rate_rps": 2, "cv": 5.0}, horizon_s=10)
    counts = [len(sample(spec, seed)) for seed in range(4000)]
    # An episode that began right after an arrival would have (cv² − 1) / 2 = 12 requests more than these 20.
    assert np.mean(counts) == pytest.approx(20, rel=0.08)


def test_bursts_have_base_and_burst_rates_inside_and_outside() -> None:
    arrivals = {"kind": "bursts", "base_rps": 25, "burst_rps": 80, "period_s": 30, "burst_s": 12, "jitter_s": 5}
    spec = workload(arrivals)
    inside = outside = burst_s = 0.0
    for seed in SEEDS:
        bursts = schedule(spec, seed).bursts
        spans = np.array([(burst.start_s, burst.end_s) for burst in bursts])
        at_s = times_s(spec, seed)[:, None]
        hits = np.any((at_s >= spans[:, 0]) & (at_s < spans[:, 1]), axis=1)
        inside, outside = inside + hits.sum(), outside + (~hits).sum()
        burst_s += float(np.diff(spans).sum())
    assert inside / burst_s == pytest.approx(80, rel=0.01)
    assert outside / (200 * len(SEEDS) - burst_s) == pytest.approx(25, rel=0.01)


def test_bursts_come_once_a_period_jittered_and_not_in_the_warm_up() -> None:
    arrivals = {"kind": "bursts", "base_rps": 1, "burst_rps": 5, "period_s": 30, "burst_s": 12, "jitter_s": 5}
    spec = workload(arrivals)
    starts = np.array([[burst.start_s for burst in schedule(spec, seed).bursts[:6]] for seed in range(500)])
    jitter_s = starts - (15 + 30 * np.arange(6))
    assert starts.min() >= 10
    assert np.abs(jitter_s).max() <= 5
    assert jitter_s.std() == pytest.approx(5 / np.sqrt(3), rel=0.05)
    assert abs(np.corrcoef(jitter_s[:, 0], jitter_s[:, 1])[0, 1]) < 0.15


def test_a_short_period_still_leaves_the_warm_up_quiet() -> None:
    arrivals = {"kind": "bursts", "base_rps": 1, "burst_rps": 5, "period_s": 8, "burst_s": 2, "jitter_s": 3}
    assert all(schedule(workload(arrivals), seed).bursts[0].start_s >= 10 for seed in SEEDS)


def test_first_burst_can_be_placed() -> None:
    arrivals = {"kind": "spikes", "base_rps": 3, "factor": 10, "every_s": 120, "spike_s": 15, "first_s": 40}
    assert [burst.start_s for burst in schedule(workload(arrivals), 0).bursts] == [40, 160]


def test_spikes_multiply_the_rate() -> None:
    arrivals = {"kind": "spikes", "base_rps": 3, "factor": 10, "every_s": 100, "spike_s": 20, "jitter_s": 0}
    assert mean_count(workload(arrivals)) == pytest.approx(3 * 160 + 30 * 40, rel=0.02)


def test_rate_series_follows_its_rates() -> None:
    rates = [5.0, 0.0, 40.0, 10.0]
    spec = workload({"kind": "rate_series", "step_s": 50, "rates_rps": rates})
    counts = np.mean([np.histogram(times_s(spec, seed), [0, 50, 100, 150, 200])[0] for seed in SEEDS], axis=0)
    assert counts / 50 == pytest.approx(rates, rel=0.03)
    assert counts[1] == 0


def test_cyclic_rate_series_starts_over() -> None:
    spec = workload({"kind": "rate_series", "step_s": 10, "rates_rps": [30, 0], "cyclic": True})
    phase_s = np.concatenate([times_s(spec, seed) % 20 for seed in SEEDS])
    assert phase_s.max() < 10
    assert mean_count(spec) == pytest.approx(3000, rel=0.01)


def test_random_start_begins_anywhere_in_the_series() -> None:
    arrivals = {"kind": "rate_series", "step_s": 100, "rates_rps": [0, 20, 0, 20, 0], "random_start": True}
    spec = workload(arrivals, horizon_s=100)
    counts = np.array([len(sample(spec, seed)) for seed in SEEDS])
    # Windows of 100 s start uniformly in the first 400 s, where half the time carries 20 rps.
    assert counts.mean() == pytest.approx(1000, rel=0.15)
    assert counts.std() > 300
    rate_rps = schedule(spec, 7).total_rps.mean()
    assert len(sample(spec, 7)) == pytest.approx(rate_rps * 100, rel=0.15)


@pytest.mark.parametrize(
    "shape",
    [{"dwell": "exponential"}, {"dwell": "lognormal", "on_cv": 0.5, "off_cv": 2.0}, {"off_rps": 1.0, "cv": 1.5}],
    ids=str,
)
def test_on_off_has_its_stationary_rate_from_the_start(shape: dict[str, Any]) -> None:
    spec = workload({"kind": "on_off", "on_rps": 9, "on_s": 16, "off_s": 43, **shape}, horizon_s=100)
    counts = np.array([np.histogram(times_s(spec, seed), [0, 50, 100])[0] for seed in range(800)])
    expected = (9 * 16 + shape.get("off_rps", 0.0) * 43) / 59
    assert counts.mean(axis=0) / 50 == pytest.approx([expected, expected], rel=0.12)


def test_on_off_dwells_have_their_means() -> None:
    arrivals = {
        "kind": "on_off",
        "on_rps": 5,
        "on_s": 16,
        "off_s": 43,
        "dwell": "lognormal",
        "on_cv": 0.5,
        "off_cv": 1.5,
    }
    spec = workload(arrivals, horizon_s=20_000)
    bursts = [schedule(spec, seed).bursts[1:-1] for seed in range(10)]
    on_s = np.concatenate([[burst.end_s - burst.start_s for burst in row] for row in bursts])
    off_s = np.concatenate([[b.start_s - a.end_s for a, b in pairwise(row)] for row in bursts])
    assert on_s.mean() == pytest.approx(16, rel=0.05)
    assert off_s.mean() == pytest.approx(43, rel=0.08)
    assert on_s.std() / on_s.mean() == pytest.approx(0.5, rel=0.1)


def test_on_off_is_burstier_than_poisson() -> None:
    assert dispersion(workload({"kind": "on_off", "on_rps": 20, "on_s": 10, "off_s": 30}), 10) > 20


def test_an_off_source_sends_nothing() -> None:
    table = sample(workload({"kind": "off"}), 0)
    assert len(table) == 0


@pytest.mark.parametrize("rate_scale", [0.25, 3.0])
def test_rate_scale_multiplies_every_rate(rate_scale: float) -> None:
    arrivals = {"kind": "bursts", "base_rps": 10, "burst_rps": 40, "period_s": 50, "burst_s": 10}
    expected = mean_count(workload(arrivals)) * rate_scale
    assert mean_count(workload(arrivals, rate_scale=rate_scale)) == pytest.approx(expected, rel=0.03)


def test_a_longer_horizon_only_adds_requests() -> None:
    arrivals = {"kind": "bursts", "base_rps": 5, "burst_rps": 30, "period_s": 40, "burst_s": 10, "jitter_s": 4}
    short, long = (times_s(workload(arrivals, horizon_s=horizon_s), 3) for horizon_s in (100, 400))
    np.testing.assert_allclose(short, long[long < 100], atol=2e-6)
