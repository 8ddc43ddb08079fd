"""Each operator's rule does what its document says."""

from __future__ import annotations

import pytest

from llmserve_env.errors import ConfigError
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.setting import filled
from tests.fleet.readings import IN_FLIGHT, RUNNING, WAITING, asks, reading, rule


class TestHpa:
    def test_replicas_are_in_proportion_to_the_metric(self) -> None:
        hpa = rule("hpa", metric=RUNNING, target_requests=10.0)
        assert asks(hpa, reading(4, running=60)) == 6

    def test_within_the_tolerance_nothing_changes(self) -> None:
        hpa = rule("hpa", metric=RUNNING, target_requests=10.0)
        assert asks(hpa, reading(10, running=109)) == 10
        assert asks(hpa, reading(10, running=112)) == 12

    def test_replicas_go_only_after_the_stabilisation_window(self) -> None:
        hpa = rule("hpa", metric=RUNNING, target_requests=10.0, down_window_s=120.0)
        assert asks(hpa, reading(10, running=100)) == 10
        held = [asks(hpa, reading(10, running=50)) for _ in range(4)]
        assert held == [10, 10, 10, 5]

    def test_the_window_up_takes_the_smallest_recommendation(self) -> None:
        hpa = rule("hpa", metric=RUNNING, target_requests=10.0, up_window_s=60.0)
        assert asks(hpa, reading(10, running=100)) == 10
        assert asks(hpa, reading(10, running=200)) == 10
        assert asks(hpa, reading(10, running=200)) == 20

    def test_replicas_that_boot_count_as_idle_on_the_way_up(self) -> None:
        hpa = rule("hpa", metric=RUNNING, target_requests=10.0)
        assert asks(hpa, reading(6, ready=4, pending=2, running=60)) == 6

    def test_a_period_adds_at_most_all_or_four(self) -> None:
        hpa = rule("hpa", metric=RUNNING, target_requests=1.0)
        assert asks(hpa, reading(2, running=60)) == 6
        assert asks(rule("hpa", metric=RUNNING, target_requests=1.0), reading(10, running=99)) == 20


class TestKeda:
    def test_replicas_are_the_queue_over_the_threshold(self) -> None:
        assert asks(rule("keda", threshold=5.0, up_replicas=16), reading(2, waiting=42)) == 9

    def test_an_empty_queue_leaves_the_minimum(self) -> None:
        assert asks(rule("keda", min_replicas=3, down_window_s=0.0), reading(8)) == 3


class TestKpa:
    def test_replicas_are_the_mean_concurrency_over_the_target(self) -> None:
        kpa = rule("kpa", concurrency=10.0, target_utilisation=0.7)
        asks(kpa, reading(5, running=30))
        assert asks(kpa, reading(5, running=40)) == 5

    def test_twice_the_ready_replicas_is_panic_and_panic_never_goes_down(self) -> None:
        kpa = rule("kpa", concurrency=10.0, target_utilisation=1.0, stable_window_s=120.0)
        asks(kpa, reading(5, running=40))
        assert asks(kpa, reading(5, running=120)) == 12
        assert asks(kpa, reading(5, running=20)) == 12

    def test_no_more_than_half_of_the_replicas_go_at_once(self) -> None:
        assert asks(rule("kpa", concurrency=10.0), reading(10)) == 5


class TestApa:
    def test_inside_the_band_nothing_changes(self) -> None:
        apa = rule("apa", metric=RUNNING, target_requests=10.0, up_tolerance=0.1, down_tolerance=0.2, window_s=30.0)
        assert asks(apa, reading(10, running=109)) == 10
        assert asks(apa, reading(10, running=81)) == 10

    def test_outside_the_band_replicas_follow_up_to_the_rates(self) -> None:
        settings = {"metric": RUNNING, "target_requests": 10.0, "window_s": 30.0}
        assert asks(rule("apa", **settings), reading(10, running=150)) == 15
        assert asks(rule("apa", **settings), reading(10, running=500)) == 20
        assert asks(rule("apa", **settings), reading(10, running=10)) == 5


class TestWva:
    def test_one_replica_more_when_the_spare_kv_is_low(self) -> None:
        assert asks(rule("wva"), reading(5, kv_use=0.71)) == 6

    def test_none_more_while_replicas_are_on_their_way(self) -> None:
        assert asks(rule("wva"), reading(6, ready=5, pending=1, kv_use=0.75)) == 6

    def test_one_fewer_only_if_the_spare_stays(self) -> None:
        assert asks(rule("wva"), reading(5, kv_use=0.3)) == 4
        assert asks(rule("wva"), reading(5, kv_use=0.6)) == 5

    def test_the_peak_of_a_minute_counts(self) -> None:
        wva = rule("wva", peak_window_s=60.0)
        asks(wva, reading(5, kv_use=0.75))
        assert asks(wva, reading(5, kv_use=0.1)) == 6


class TestDynamo:
    def test_throughput_divides_the_tokens_by_what_a_replica_serves(self) -> None:
        settings = {"mode": 0.0, "interval_s": 30.0, "prompt_tps_per_replica": 1000.0, "output_tps_per_replica": 100.0}
        assert asks(rule("dynamo", **settings), reading(3, prompt_tps=2000.0, output_tps=250.0)) == 5

    def test_a_trend_is_carried_into_the_next_interval(self) -> None:
        settings = {"mode": 0.0, "interval_s": 30.0, "output_tps_per_replica": 100.0, "trend_gain": 0.5}
        dynamo = rule("dynamo", **settings)
        asks(dynamo, reading(3, output_tps=200.0))
        assert asks(dynamo, reading(3, output_tps=400.0)) == 5

    def test_load_moves_by_one_replica(self) -> None:
        assert asks(rule("dynamo", mode=1.0), reading(4, kv_use=0.95)) == 5
        assert asks(rule("dynamo", mode=1.0), reading(4, kv_use=0.2)) == 3
        assert asks(rule("dynamo", mode=1.0), reading(4, kv_use=0.7)) == 4


class TestInformed:
    def test_session_starts_call_for_replicas_before_any_request_does(self) -> None:
        informed = rule("informed", weight_request_rps=0.5, weight_session_start_rps=0.5, margin=0.0)
        calm = asks(informed, reading(10, request_rps=1.0, session_start_rps=1.0))
        assert asks(informed, reading(10, request_rps=1.0, session_start_rps=3.0)) > calm == 10


@pytest.mark.parametrize("name", [name for name in SCALERS if name != "oracle"])
def test_every_rule_stays_between_one_replica_and_the_limit(name: str) -> None:
    scaler = rule(name)
    for load in (0.0, 1e6, 0.0):
        assert 1 <= asks(scaler, reading(5, limit=12, waiting=load, running=load, output_tps=load)) <= 12


def test_a_setting_out_of_its_range_is_named() -> None:
    with pytest.raises(ConfigError, match=r"tolerance must be in 0\.\.0\.3; got 2"):
        filled(SCALERS["hpa"].settings, {"tolerance": 2.0})


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(ConfigError, match="no setting 'forbearance'"):
        filled(SCALERS["hpa"].settings, {"forbearance": 0.1})


@pytest.mark.parametrize("metric", [WAITING, RUNNING, IN_FLIGHT])
def test_rules_scale_on_the_metric_that_they_are_told(metric: float) -> None:
    figures = {WAITING: {"waiting": 50}, RUNNING: {"running": 50}, IN_FLIGHT: {"waiting": 20, "running": 30}}
    assert asks(rule("hpa", metric=metric, target_requests=10.0), reading(4, **figures[metric])) == 5
