from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from llmserve_env.errors import ConfigError
from llmserve_env.rng import ARRIVALS_STREAM, stream
from llmserve_env.workloads.arrivals import OnOff, RateSeries
from llmserve_env.workloads.rates import arrival_times_s, rate_curve
from llmserve_env.workloads.sampling import sample
from llmserve_env.workloads.spec import parse_workload
from llmserve_env.workloads.streams import SourceStreams
from llmserve_env.workloads.traces.fidelity import measure_fidelity
from llmserve_env.workloads.traces.fit_arrivals import fit_arrivals
from llmserve_env.workloads.traces.fitting import FitOptions, fit_trace
from tests.workloads.traces.conftest import Loader


def arrivals(process: RateSeries | OnOff, duration_s: float, seed: int = 0) -> np.ndarray:
    curve = rate_curve(process, duration_s, 1.0, SourceStreams(seed, 0))
    return arrival_times_s(curve, process.cv, stream(seed, ARRIVALS_STREAM))


def lengths(n: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"prompt_tokens": rng.integers(10, 2000, n), "output_tokens": rng.integers(1, 300, n)}


def test_poisson_arrivals_need_one_rate() -> None:
    flat = RateSeries(kind="rate_series", step_s=2000.0, rates_rps=(8.0,))
    (fit,) = fit_arrivals(arrivals(flat, 2000.0), 2000.0)
    assert isinstance(fit.process, RateSeries)
    assert len(fit.process.rates_rps) == 1
    assert fit.process.cv == pytest.approx(1.0, abs=0.1)


def test_a_drifting_rate_is_followed() -> None:
    rates = (2.0, 20.0, 5.0, 12.0)
    drifting = RateSeries(kind="rate_series", step_s=600.0, rates_rps=rates, cv=1.0)
    fit = fit_arrivals(arrivals(drifting, 2400.0), 2400.0)[0]
    assert isinstance(fit.process, RateSeries)
    assert fit.process.step_s <= 600.0
    index = ((np.arange(4) + 0.5) * 600.0 / fit.process.step_s).astype(int)
    assert np.array(fit.process.rates_rps)[index] == pytest.approx(rates, rel=0.2)


def test_on_off_periods_are_recovered() -> None:
    truth = OnOff(kind="on_off", on_rps=15.0, on_s=12.0, off_s=40.0, cv=1.0)
    (fit,) = fit_arrivals(arrivals(truth, 40_000.0), 40_000.0, "on_off")
    assert isinstance(fit.process, OnOff)
    assert fit.process.on_s == pytest.approx(12.0, rel=0.25)
    assert fit.process.off_s == pytest.approx(40.0, rel=0.25)
    assert fit.process.on_rps == pytest.approx(15.0, rel=0.25)
    assert fit.median_error < 0.1


def test_bursty_arrivals_are_tried_both_ways() -> None:
    truth = OnOff(kind="on_off", on_rps=15.0, on_s=12.0, off_s=40.0, cv=1.0)
    kinds = {fit.process.kind for fit in fit_arrivals(arrivals(truth, 3000.0), 3000.0)}
    assert kinds == {"rate_series", "on_off"}


def test_arrivals_without_bursts_have_no_on_off_fit(trace_of: Loader) -> None:
    even = np.arange(0.0, 2000.0, 0.5)
    assert fit_arrivals(even, 2000.0, "on_off") == []
    trace = trace_of(arrival_s=even, **lengths(len(even)))
    with pytest.raises(ConfigError, match=r"no ON/OFF process.*use --arrivals rate_series"):
        fit_trace(trace, FitOptions(arrivals="on_off"))


def test_a_few_requests_are_fitted_by_their_mean_rate(trace_of: Loader) -> None:
    fitted = fit_trace(trace_of(arrival_s=[0, 5, 40], **lengths(3)))
    assert fitted.spec.sources[0].arrivals.kind == "rate_series"
    assert len(sample(fitted.spec, 0)) > 0


def test_one_request_is_enough(trace_of: Loader) -> None:
    trace = trace_of(arrival_s=[3], prompt_tokens=[64], output_tokens=[1], prefix=["p"], prefix_tokens=[64])
    assert fit_trace(trace).spec.sources[0].prefix_tokens == 64


def test_a_few_stray_sessions_are_no_reason_for_sessions(trace_of: Loader) -> None:
    steady = arrivals(RateSeries(kind="rate_series", step_s=900.0, rates_rps=(5.0,)), 900.0)
    session = ["s" if i in (10, 500) else "" for i in range(len(steady))]
    fitted = fit_trace(trace_of(arrival_s=steady, session=session, **lengths(len(steady))))
    assert fitted.spec.sources[0].sessions is None


def test_what_is_written_is_what_was_fitted(trace_of: Loader) -> None:
    steady = arrivals(RateSeries(kind="rate_series", step_s=600.0, rates_rps=(4.0,)), 600.0)
    trace = trace_of(arrival_s=steady, **lengths(len(steady)))
    options = FitOptions(horizon_s=120, ttft_slo_ms=300.0, patience_s=8.0, acceptance=0.6, random_start=True)
    fitted = fit_trace(trace, options)
    text = yaml.safe_dump({"workload": fitted.data}, sort_keys=False, default_flow_style=None)
    assert parse_workload(yaml.safe_load(text)["workload"]) == fitted.spec
    assert fitted.spec.horizon_s == 120
    assert (fitted.spec.classes[0].ttft_slo_ms, fitted.spec.classes[0].patience_s) == (300.0, 8.0)
    table = sample(fitted.spec, 5)
    assert np.all(table.acceptance == 0.6)
    assert np.array_equal(table.arrival_at_ps, sample(fitted.spec, 5).arrival_at_ps)


def test_tenants_keep_their_own_burstiness_and_lengths(trace_of: Loader) -> None:
    steady = arrivals(RateSeries(kind="rate_series", step_s=3000.0, rates_rps=(3.0,)), 3000.0)
    bursty = arrivals(OnOff(kind="on_off", on_rps=12.0, on_s=10.0, off_s=50.0), 3000.0, seed=1)
    small = np.linspace(1.0, 2999.0, 30)
    at_s = np.concatenate((steady, bursty, small))
    names = np.array(["chat"] * len(steady) + ["batch"] * len(bursty) + ["x", "y", "z"] * 10)
    prompt = np.concatenate((np.full(len(steady), 50), np.full(len(bursty), 4000), np.full(30, 9)))
    order = np.argsort(at_s)
    trace = trace_of(
        arrival_s=at_s[order], prompt_tokens=prompt[order], output_tokens=np.full(len(order), 7), tenant=names[order]
    )
    fitted = fit_trace(trace, FitOptions(num_tenants=2))
    assert fitted.spec.tenants == ("chat", "batch", "others")
    table = sample(fitted.spec, 0)
    gaps = [np.diff(table.arrival_at_ps[table.tenant == tenant]) for tenant in (0, 1)]
    assert gaps[0].std() / gaps[0].mean() < 1.3
    assert gaps[1].std() / gaps[1].mean() > 2.0
    assert set(table.prompt_tokens[table.tenant == 1].tolist()) == {4000}
    shares = np.bincount(table.tenant) / len(table)
    assert shares == pytest.approx(np.bincount(np.minimum(trace.tenant, 2)) / len(trace), abs=0.1)


def test_priorities_become_classes_in_their_shares(trace_of: Loader) -> None:
    steady = arrivals(RateSeries(kind="rate_series", step_s=900.0, rates_rps=(5.0,)), 900.0)
    priority = np.where(np.arange(len(steady)) % 4 == 0, 2, 0)
    fitted = fit_trace(trace_of(arrival_s=steady, priority=priority, **lengths(len(steady))))
    assert fitted.spec.class_names == ("priority_0", "priority_1", "priority_2")
    table = sample(fitted.spec, 0)
    assert np.mean(table.priority == 2) == pytest.approx(0.25, abs=0.04)
    assert not np.any(table.priority == 1)


def conversations(num_sessions: int) -> dict[str, Any]:
    """Sessions of one to three turns, 20 s apart, that all begin with the same 64 tokens."""
    rng = np.random.default_rng(4)
    rows = []
    for session, start_s in enumerate(np.sort(rng.uniform(0.0, 2000.0, num_sessions))):
        said = 64
        for turn in range(1 + session % 3):
            prompt = said + int(rng.integers(20, 40))
            rows.append((start_s + 20.0 * turn, prompt, 10, f"s{session}", "system", 64))
            said = prompt + 10
    columns = zip(*sorted(rows), strict=True)
    names = ("arrival_s", "prompt_tokens", "output_tokens", "session", "prefix", "prefix_tokens")
    return dict(zip(names, columns, strict=True))


def test_sessions_keep_their_turns_pauses_and_prefix(trace_of: Loader) -> None:
    trace = trace_of(**conversations(900))
    fitted = fit_trace(trace)
    sessions = fitted.spec.sources[0].sessions
    assert sessions is not None
    assert (sessions.prefix_tokens, sessions.turns.smallest, sessions.turns.largest) == (64, 1, 3)
    assert sessions.think_s.smallest == sessions.think_s.largest == 20.0
    table = sample(fitted.spec, 0)
    assert np.all(table.prefix_tokens == 64)
    assert len(table) == pytest.approx(len(trace), rel=0.1)
    assert np.bincount(np.bincount(table.session_id)).argmax() <= 3
    assert table.prompt_tokens.mean() == pytest.approx(trace.prompt_tokens.mean(), rel=0.05)


def test_requests_without_session_beside_sessions_stay_alone(trace_of: Loader) -> None:
    columns = conversations(300)
    columns["session"] = tuple("" if i % 2 else s for i, s in enumerate(columns["session"]))
    fitted = fit_trace(trace_of(**columns))
    assert fitted.spec.sources[0].sessions is not None
    assert len(sample(fitted.spec, 0)) == pytest.approx(len(columns["session"]), rel=0.15)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"arrivals": "fractal"}, "arrivals must be one of auto, rate_series, on_off"),
        ({"num_tenants": 0}, "at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        FitOptions(**options)


def test_a_generator_that_is_off_is_said_to_be(trace_of: Loader) -> None:
    steady = arrivals(RateSeries(kind="rate_series", step_s=900.0, rates_rps=(5.0,)), 900.0)
    trace = trace_of(arrival_s=steady, **lengths(len(steady)))
    data = fit_trace(trace).data
    data["sources"][0]["arrivals"]["cv"] = 5.0
    data["sources"][0]["kinds"][0]["prompt_tokens"] = {"kind": "constant", "value": 100}
    found = measure_fidelity(trace, parse_workload(data))
    missed = {statistic.name for statistic in found.statistics if not statistic.is_met}
    assert not found.is_met
    assert {"IDC 1 s", "prompt p50"} <= missed
    assert "output p50" not in missed
