from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.units import PS_PER_S
from llmserve_env.workloads import parse_workload, sample, schedule
from tests.workloads.specs import ADVERSARIAL, BURSTY, STATIC, data, workload


def test_a_steady_source_has_a_warm_up_and_is_steady() -> None:
    plan = schedule(parse_workload(data(STATIC)), 0)
    assert plan.rate_rps.shape == (200, 1)
    assert plan.total_rps == pytest.approx(np.full(200, 10.0))
    assert plan.phase == ("warmup",) * 10 + ("steady",) * 190
    assert not plan.is_burst.any()
    assert plan.bursts == ()


def test_phases_of_a_burst() -> None:
    arrivals = {"kind": "bursts", "base_rps": 10, "burst_rps": 50, "period_s": 60, "burst_s": 12.5, "first_s": 30.5}
    plan = schedule(workload(arrivals, horizon_s=80), 0)
    assert plan.phase == (("warmup",) * 10 + ("steady",) * 20 + ("burst",) * 13 + ("cooldown",) * 10 + ("steady",) * 27)
    assert np.flatnonzero(plan.is_burst).tolist() == list(range(30, 43))
    assert plan.total_rps[[29, 30, 31, 42, 43]] == pytest.approx([10, 30, 50, 50, 10])


def test_sources_are_listed_apart() -> None:
    plan = schedule(parse_workload(data(ADVERSARIAL)), 4)
    assert plan.rate_rps.shape == (200, 2)
    assert plan.rate_rps[:, 0] == pytest.approx(np.full(200, 30.0))
    assert plan.rate_rps[:, 1].min() == pytest.approx(3)
    assert plan.rate_rps[:, 1].max() == pytest.approx(30)
    assert {burst.source for burst in plan.bursts} == {1}


def test_arrivals_follow_the_schedule_of_their_seed() -> None:
    spec = parse_workload(data(BURSTY))
    scores = np.concatenate([
        (np.bincount(sample(spec, seed).arrival_at_ps // PS_PER_S, minlength=200) - plan) / np.sqrt(plan)
        for seed in range(30)
        for plan in [schedule(spec, seed).total_rps]
    ])  # fmt: skip
    # Poisson counts around the right expectation have mean 0 and variance 1; those of another seed are far off.
    assert scores.mean() == pytest.approx(0, abs=0.05)
    assert scores.var() == pytest.approx(1, abs=0.1)


def test_on_periods_are_bursts() -> None:
    spec = workload({"kind": "on_off", "on_rps": 9, "on_s": 16, "off_s": 43}, horizon_s=2000)
    plan = schedule(spec, 1)
    at_s = sample(spec, 1).arrival_at_ps // PS_PER_S
    assert plan.is_burst[at_s].all()
    assert np.all(plan.total_rps[~plan.is_burst] == 0)
    assert set(plan.phase) == {"warmup", "burst", "cooldown", "steady"}


def test_expected_requests_are_those_of_the_curve() -> None:
    arrivals = {"kind": "rate_series", "step_s": 0.3, "rates_rps": [1, 7, 0, 3.5], "cyclic": True}
    plan = schedule(workload(arrivals, horizon_s=12), 0)
    assert plan.total_rps.sum() == pytest.approx(12 * 11.5 / 4)
    assert plan.total_rps[0] == pytest.approx(0.3 + 2.1 + 0.0 + 0.35)
