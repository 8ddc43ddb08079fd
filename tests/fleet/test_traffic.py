"""Traffic: sessions whose turns follow their starts, counts that agree, and a cloud as described."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.fleet.sections import ZoneSpec
from llmserve_env.fleet.series import load_series
from llmserve_env.fleet.sessions import sample_turns
from llmserve_env.fleet.task import TASKS, load_fleet_task
from llmserve_env.fleet.zones import sample_launches, sample_zones
from tests.fleet.small import small_task, traffic_of

S_PER_DAY = 86_400.0


@pytest.mark.parametrize("name", TASKS)
def test_the_windows_count_every_request_and_job_once(name: str) -> None:
    traffic = traffic_of(small_task(name, steps=120), 5)
    assert traffic.arrivals.sum() == len(traffic.requests)
    assert traffic.prompt_tokens.sum() == traffic.requests.prompt_tokens.sum()
    assert traffic.output_tokens.sum() == traffic.requests.output_tokens.sum()
    assert traffic.income_usd.sum() == pytest.approx(traffic.value_usd.sum())
    assert traffic.batch_arrivals.sum() == len(traffic.jobs)
    assert (traffic.new_prompt_tokens <= traffic.prompt_tokens).all()
    assert (traffic.open_sessions >= 0).all()
    assert traffic.num_windows == 120 + traffic.lead_windows


@pytest.mark.parametrize("name", TASKS)
def test_one_seed_is_one_world(name: str) -> None:
    task = small_task(name)
    one, same, other = traffic_of(task, 5), traffic_of(task, 5), traffic_of(task, 105)
    np.testing.assert_array_equal(one.requests.arrival_at_ps, same.requests.arrival_at_ps)
    np.testing.assert_array_equal(one.launch_delays_s, same.launch_delays_s)
    assert len(one.requests) != len(other.requests)


def test_the_load_is_the_series_rescaled_to_the_tasks_mean() -> None:
    task, series = load_fleet_task("elastic_plain"), load_series("servegen_m_large")
    for start_s in series.starts("train", task.length_s)[::9]:
        traffic = task.traffic(series, start_s, 0)
        share = float(series.at(start_s + np.arange(0.0, task.length_s, 60.0))[0].mean())
        rate_rps = traffic.arrivals[traffic.lead_windows :].sum() / task.length_s
        assert rate_rps == pytest.approx(share * task.traffic_spec.mean_rps, rel=0.05)


def test_most_work_of_the_elastic_fleet_follows_a_session_start_by_minutes() -> None:
    task, series = load_fleet_task("elastic_fleet"), load_series("servegen_m_large")
    turns = sample_turns(task.traffic_spec, series, 86_400.0, 10_800.0, task.replica.max_model_len, 1)
    in_session = turns.session >= 0
    lag_s = turns.arrival_s[in_session] - turns.session_start_s[turns.session[in_session]]
    work = turns.output_tokens.astype(float)
    follows = lag_s > 60.0
    assert 0.75 <= work[in_session][follows].sum() / work.sum() <= 0.90
    assert 240.0 <= np.average(lag_s[follows], weights=work[in_session][follows]) <= 420.0


def test_a_turn_repeats_the_conversation_before_it() -> None:
    task, series = load_fleet_task("elastic_fleet"), load_series("servegen_m_large")
    turns = sample_turns(task.traffic_spec, series, 86_400.0, 3_600.0, task.replica.max_model_len, 1)
    order = np.lexsort((turns.arrival_s, turns.session))
    session, prompt, output, history = (
        column[order] for column in (turns.session, turns.prompt_tokens, turns.output_tokens, turns.history_tokens)
    )
    follows = (session[1:] == session[:-1]) & (session[1:] >= 0)
    assert follows.sum() > 1_000
    np.testing.assert_array_equal(history[1:][follows], (prompt + output)[:-1][follows])
    assert (turns.prompt_tokens + turns.output_tokens <= task.replica.max_model_len).all()


def test_zones_are_up_as_often_and_lost_as_often_as_described() -> None:
    zones = load_fleet_task("spot_hedge").zones
    up = sample_zones(zones, 60 * S_PER_DAY, np.random.default_rng(0))
    for zone, record in zip(zones, up, strict=True):
        assert record.mean() == pytest.approx(zone.availability, abs=0.12)
        losses_per_day = np.count_nonzero(record[:-1] & ~record[1:]) / 60
        assert losses_per_day == pytest.approx(zone.losses_per_day, rel=0.5)


def test_zones_of_one_region_fail_together() -> None:
    zones = tuple(ZoneSpec(name=f"z{k}", region=f"r{k // 2}", availability=0.6, losses_per_day=5.0) for k in range(4))
    up = sample_zones(zones, 40 * S_PER_DAY, np.random.default_rng(1)).astype(float)
    correlation = np.corrcoef(up)
    assert min(correlation[0, 1], correlation[2, 3]) > max(abs(correlation[:2, 2:]).ravel())


def test_launches_take_as_long_and_fail_as_often_as_described() -> None:
    boots = tuple(pool.boot for pool in load_fleet_task("spot_hedge").pools)
    delays = sample_launches(boots, np.random.default_rng(0))
    assert np.median(np.abs(delays)) == pytest.approx(180.0, rel=0.05)
    assert (delays[0] > 0).all()
    assert (delays[1:] < 0).mean() == pytest.approx(0.05, abs=0.02)
