"""The pilot on an engine in memory: it acts within its bounds, explains itself, and is safe when something fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from llmserve_env.backends.real.tasks import real_task
from llmserve_env.errors import ConfigError, ProviderError
from llmserve_env.pilot.bounds import Bounds, ReplicaBounds, read_bounds
from llmserve_env.pilot.exporter import DecisionLog, Exporter, PilotMetrics
from llmserve_env.pilot.pilot import Pilot
from llmserve_env.pilot.readings import parse_scrape, read_window
from llmserve_env.pilot.shadow import read_log, replay
from tests.pilot.engines import FakeEngine, Wisher

BOUNDS = Bounds.model_validate(
    {
        "stale_after_s": 30.0,
        "knobs": {
            "batch_cap": {"low": 8, "high": 64, "max_factor": 2.0},
            "kv_budget_fraction": {"low": 0.5, "high": 1.0, "max_step": 0.2, "dwell_windows": 3},
        },
        "replicas": {"low": 1, "high": 6, "target_busy_share": 0.5},
    }
)


def pilot_of(engine: FakeEngine, policy: Wisher, bounds: Bounds = BOUNDS, **options: Any) -> Pilot:
    pilot = Pilot(real_task("tiny_server"), policy, engine, bounds, **options)
    pilot.decide()
    engine.serve()
    return pilot


def test_it_acts_on_what_it_has_seen_and_says_why() -> None:
    engine, policy = FakeEngine(), Wisher({"batch_cap": 48})
    decision = pilot_of(engine, policy).decide()
    assert decision.outcome == "applied" and engine.found.batch_cap == 48
    assert decision.in_force["batch_cap"] == 32 and decision.reason == "as the policy wants"
    view = policy.views[0]
    assert view.metrics["ttft_p50_ms"][0] == pytest.approx(300.0, abs=200.0)
    assert view.metrics["window_rate_rps"][0] == pytest.approx(10.0, abs=1.0)
    assert view.metrics["queue_depth"][0] == 3 and view.metrics["throughput_tps"][0] == pytest.approx(500, rel=0.1)
    assert view.metrics["busy_gpu_s"][0] == pytest.approx(3.0)
    assert view.features is not None and np.isfinite(view.features).all()


def test_bounds_and_rates_hold_whatever_the_policy_wants() -> None:
    engine = FakeEngine()
    pilot = pilot_of(engine, Wisher({"batch_cap": 500, "kv_budget_fraction": 0.1, "token_budget": 16}))
    decision = pilot.decide()
    assert decision.permitted == {
        "batch_cap": 64,
        "token_budget": 2_048,
        "kv_budget_fraction": 0.8,
        "speculation_depth": 0,
    }
    assert "batch_cap: 500 is bounded to 64" in decision.reason and "token_budget: not in the bounds" in decision.reason
    engine.serve()
    assert pilot.decide().permitted["kv_budget_fraction"] == 0.8
    for _ in range(6):
        engine.serve()
        pilot.decide()
    assert engine.found.withheld_blocks == 500


def test_a_dry_run_recommends_and_changes_nothing() -> None:
    engine = FakeEngine()
    decision = pilot_of(engine, Wisher({"batch_cap": 16}), dry_run=True).decide()
    assert decision.outcome == "recommended" and decision.permitted["batch_cap"] == 16
    assert engine.orders == [] and engine.found.batch_cap == 32


@pytest.mark.parametrize("failure", [RuntimeError("weights are gone"), KeyError("x"), MemoryError()])
def test_a_failing_policy_falls_back_to_the_last_good_configuration(failure: Exception) -> None:
    engine, policy = FakeEngine(), Wisher({"batch_cap": 64})
    pilot = pilot_of(engine, policy)
    pilot.decide()
    assert engine.found.batch_cap == 64
    policy.failure = failure
    engine.serve()
    decision = pilot.decide()
    assert decision.outcome == "fallback" and type(failure).__name__ in decision.reason
    # 64 was never seen to serve a whole window before the policy failed, 32 was.
    assert engine.found.batch_cap == 32
    policy.failure = None
    engine.serve()
    assert pilot.decide().outcome == "applied"


def test_stale_metrics_fall_back_and_a_new_window_is_opened_when_they_return() -> None:
    engine = FakeEngine()
    pilot = pilot_of(engine, Wisher({"batch_cap": 64}))
    pilot.decide()
    engine.is_gone = True
    assert pilot.decide().outcome == "fallback" and engine.found.batch_cap == 32
    engine.is_gone = False
    engine.serve(seconds=100.0)
    late = pilot.decide()
    assert late.outcome == "fallback" and "old" in late.reason
    engine.serve()
    assert pilot.decide().outcome == "applied"


def test_a_restarted_engine_is_not_taken_for_negative_traffic() -> None:
    engine = FakeEngine()
    pilot = pilot_of(engine, Wisher({"batch_cap": 64}))
    pilot.decide()
    engine.waits_s = []
    decision = pilot.decide()
    assert decision.outcome == "fallback" and "restart" in decision.reason


@pytest.mark.parametrize(
    ("busy", "queue", "desired"), [(0.25, 0, 1), (0.5, 0, 2), (1.0, 0, 4), (0.5, 16, 4), (1.0, 99, 6)]
)
def test_desired_replicas_follow_busy_time_and_queue_within_their_bounds(busy: float, queue: int, desired: int) -> None:
    bounds = ReplicaBounds(low=1, high=6, target_busy_share=0.5, queue_per_replica=8.0)
    assert bounds.desired(bounds.load(2, busy, queue)) == desired


def test_every_decision_is_in_the_metrics_the_json_and_the_log(tmp_path: Path) -> None:
    engine = FakeEngine()
    pilot = Pilot(real_task("tiny_server"), Wisher({"batch_cap": 48}), engine, BOUNDS, replicas=2)
    metrics, log = PilotMetrics(pilot), DecisionLog(tmp_path / "day" / "decisions.jsonl")
    pilot.listeners.append(log.record)
    exporter = Exporter(metrics, "127.0.0.1", 0)
    try:
        for _ in range(4):
            pilot.decide()
            engine.serve()
        with httpx.Client(base_url=f"http://127.0.0.1:{exporter.port}") as client:
            text, shown = client.get("/metrics").text, client.get("/decisions").json()
            assert client.get("/health").status_code == 200 and client.get("/nothing").status_code == 404
    finally:
        exporter.close()
        log.close()
    assert [row["outcome"] for row in shown] == ["unchanged", "applied", "unchanged", "unchanged"]
    assert 'llmserve_pilot_decisions_total{outcome="applied"} 1.0' in text
    assert 'llmserve_pilot_knob{knob="batch_cap",value="in_force"} 48.0' in text
    assert "llmserve_pilot_desired_replicas 3.0" in text and "llmserve_pilot_dry_run 0.0" in text
    lines = (tmp_path / "day" / "decisions.jsonl").read_text().splitlines()
    assert [json.loads(line)["window"] for line in lines] == [0, 1, 2, 3]


def test_a_recorded_log_says_what_another_policy_would_have_done_and_saved(tmp_path: Path) -> None:
    engine = FakeEngine()
    pilot = Pilot(real_task("tiny_server"), Wisher({}), engine, BOUNDS)
    log = DecisionLog(tmp_path / "log.jsonl")
    pilot.listeners.append(log.record)
    for _ in range(7):
        pilot.decide()
        engine.serve()
    log.close()
    windows = read_log(tmp_path / "log.jsonl")
    assert len(windows) == 6 and windows[0].reading.arrived == 50
    idle = replay(real_task("tiny_server"), Wisher({}), BOUNDS, windows)
    assert idle.changes == 0 and idle.piloted == idle.recorded and idle.saved("cost_usd") == 0.0
    eager = replay(real_task("tiny_server"), Wisher({"batch_cap": 8}), BOUNDS, windows)
    assert eager.changes == 6 and eager.mean_wanted["batch_cap"] == 16
    assert eager.piloted["ttft_mean_ms"] != eager.recorded["ttft_mean_ms"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("knobs: {batch_cap: {low: 9, high: 3}}", "low must not exceed high"),
        ("knobs: {quantization_tier: {low: 0, high: 1}}", "a running engine takes only"),
        ("knobs: {batch_cap: {low: 0, high: 64}}", "exceeds a whole number from 1"),
        ("windows_s: 3", "Extra inputs"),
        ("window_s: -1", "window_s"),
        ("[1, 2", "cannot be read"),
    ],
)
def test_a_bounds_file_that_makes_no_sense_is_refused_with_its_field(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        read_bounds(path)


def test_a_log_of_something_else_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"reading": {}}\n{"weather": 1}\n')
    with pytest.raises(ConfigError, match=r"log\.jsonl:2 is not a decision"):
        read_log(path)


def test_metrics_of_another_server_are_refused() -> None:
    with pytest.raises(ProviderError, match="the metrics lack vllm:num_requests_running"):
        parse_scrape("process_cpu_seconds_total 3\n", 0.0)


def test_waits_are_read_from_the_histogram() -> None:
    engine = FakeEngine()
    before = engine.scrape()
    engine.waits_s, engine.at_s = [0.05] * 9 + [3.0], 5.0
    reading = read_window(before, engine.scrape(), 0.5)
    assert reading.arrived == reading.first_tokens == 10 and len(reading.ttft_s) == 10
    assert sum(wait <= 0.1 for wait in reading.ttft_s) == 9 and 1.0 <= max(reading.ttft_s) <= 5.0
