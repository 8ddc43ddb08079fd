"""What holds in every episode of a fleet, whatever is decided: requests, dollars and snapshots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_env.engine.layout import FINISHED
from llmserve_env.fleet.dollars import credit_share
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.serving import BATCH_PRIORITY, EngineServer
from llmserve_env.fleet.task import TASKS, FleetTask
from tests.fleet.small import random_decision, small_task, traffic_of

seeds = st.integers(0, 10_000)
law = settings(max_examples=12, deadline=None)


@pytest.fixture(scope="module", params=TASKS)
def task(request: pytest.FixtureRequest) -> FleetTask:
    return small_task(request.param)


def random_episode(task: FleetTask, seed: int) -> tuple[FleetEpisode, np.random.Generator]:
    episode = FleetEpisode(task, traffic_of(task, seed))
    episode.reset()
    return episode, np.random.default_rng(seed)


def engine_of(episode: FleetEpisode) -> EngineServer:
    assert isinstance(episode.server, EngineServer)
    return episode.server


@given(seed=seeds)
@law
def test_every_request_is_given_once_and_judged_at_most_once(task: FleetTask, seed: int) -> None:
    episode, rng = random_episode(task, seed)
    while not episode.is_over:
        episode.step(random_decision(task, rng))
        requests, progress, _ = engine_of(episode).given
        is_waiting_client = requests["priority"] != BATCH_PRIORITY
        arrived = int(episode.traffic.arrivals[: episode.progress.window].sum())
        assert is_waiting_client.sum() == arrived
        ended = is_waiting_client & (progress["status"] >= FINISHED)
        assert episode.account.judged <= ended.sum() <= arrived
        assert 0 <= episode.account.met <= episode.account.judged


@given(seed=seeds)
@law
def test_income_is_that_of_the_requests_whose_promise_was_kept(task: FleetTask, seed: int) -> None:
    """Counted again from the records of all requests, at the end, instead of window by window."""
    episode, rng = random_episode(task, seed)
    _, progress, _ = engine_of(episode).given
    in_lead = progress["status"] >= FINISHED
    while not episode.is_over:
        episode.step(random_decision(task, rng))
    requests, progress, value = engine_of(episode).given
    counts = np.ones(len(value), bool)
    counts[: len(in_lead)] = ~in_lead
    is_done = counts & (progress["status"] == FINISHED)
    ttft_ps = progress["first_token_at_ps"] - requests["arrival_at_ps"]
    decode_ps = progress["finished_at_ps"] - progress["first_token_at_ps"]
    is_quick = decode_ps <= task.slo.tpot_ms * 1e9 * np.maximum(requests["output_tokens"] - 1, 1)
    is_kept = is_done & (ttft_ps <= task.slo.ttft_ms * 1e9) & is_quick & (requests["priority"] != BATCH_PRIORITY)
    assert episode.account.interactive_usd == pytest.approx(value[is_kept].sum())
    assert episode.account.met == is_kept.sum()
    in_time = progress["finished_at_ps"] <= requests["slo_at_ps"]
    is_job = is_done & in_time & (requests["priority"] == BATCH_PRIORITY)
    assert episode.account.batch_usd == pytest.approx(value[is_job].sum())


@given(seed=seeds)
@law
def test_the_bill_is_the_time_of_the_replicas_that_were_there(task: FleetTask, seed: int) -> None:
    """At least that of replicas up at both ends of a window and never replaced, at most that of all there may be."""
    episode, rng = random_episode(task, seed)
    window_h = task.window_s / 3_600.0
    prices = [task.prices.gpu_hour_usd[pool.purchase] * task.gpus_per_replica for pool in task.pools]
    while not episode.is_over:
        before, billed_usd = episode.progress.last.pools, episode.account.bill_usd
        decision = random_decision(task, rng)
        episode.step(decision)
        gained_usd = episode.account.bill_usd - billed_usd
        most_usd = sum(price * window_h * pool.max_replicas for price, pool in zip(prices, task.pools, strict=True))
        assert -1e-9 <= gained_usd <= most_usd + 1e-9
        seconds = [(pool.serving_s, pool.asleep_s) for pool in episode.progress.last.pools]
        exact_usd = sum(
            price * (serving_s + task.prices.asleep_share * asleep_s) / 3_600.0
            for price, (serving_s, asleep_s) in zip(prices, seconds, strict=True)
        )
        assert gained_usd == pytest.approx(exact_usd)
        for spec, was, now, (serving_s, asleep_s) in zip(
            task.pools, before, episode.progress.last.pools, seconds, strict=True
        ):
            assert serving_s + asleep_s <= spec.max_replicas * task.window_s + 1e-6
            if was.up == now.up == spec.max_replicas:
                assert serving_s == pytest.approx(spec.max_replicas * task.window_s)


def test_a_fleet_that_does_not_change_costs_its_replicas_times_the_hours() -> None:
    task = small_task("elastic_plain")
    traffic = traffic_of(task, 3)
    episode = FleetEpisode(task, replace(traffic, initial=(2,), script=replace(traffic.script, initial=(2,))))
    episode.reset()
    while not episode.is_over:
        episode.step(replace(task.default_decision(), serving=(2,)))
    hours = task.length_s / 3_600.0
    assert episode.account.bill_usd == pytest.approx(2 * task.gpus_per_replica * hours * 2.99)
    assert episode.progress.gpu_hours == pytest.approx(2 * task.gpus_per_replica * hours)


@given(seed=seeds)
@law
def test_dollars_of_the_steps_add_up_to_income_less_bill_less_credits(task: FleetTask, seed: int) -> None:
    episode, rng = random_episode(task, seed)
    total_usd = sum(episode.step(random_decision(task, rng))[1] for _ in range(task.steps))
    account = episode.account
    credits_usd = credit_share(account.attainment, task.prices.credits) * account.interactive_usd
    assert total_usd == pytest.approx(account.income_usd - account.bill_usd - credits_usd)


@given(seed=seeds)
@law
def test_a_restored_snapshot_goes_on_as_if_never_stopped(task: FleetTask, seed: int) -> None:
    """Even after another branch was played, which admitted other batch jobs."""
    episode, rng = random_episode(task, seed)
    decisions = [random_decision(task, rng) for _ in range(task.steps)]
    half = task.steps // 2
    for decision in decisions[:half]:
        episode.step(decision)
    snapshot = episode.snapshot()
    first = [episode.step(decision)[:2] for decision in decisions[half:]]
    episode.restore(snapshot)
    for _ in range(half // 2):
        episode.step(random_decision(task, rng))
    episode.restore(snapshot)
    assert [episode.step(decision)[:2] for decision in decisions[half:]] == first


@given(seed=seeds)
@law
def test_the_world_does_not_depend_on_what_is_decided(task: FleetTask, seed: int) -> None:
    figures = []
    for number in (1, 2):
        episode, _ = random_episode(task, seed)
        rng = np.random.default_rng(number)
        seen = [episode.step(random_decision(task, rng))[0] for _ in range(task.steps)]
        figures.append([(o.request_rps, o.prompt_tps, o.session_start_rps, o.open_sessions) for o in seen])
    assert figures[0] == figures[1]


@given(seed=seeds)
@law
def test_the_metrics_of_the_pools_add_up_to_those_of_the_fleet(task: FleetTask, seed: int) -> None:
    episode, rng = random_episode(task, seed)
    while not episode.is_over:
        outcome = episode.step(random_decision(task, rng))[3]["outcome"]
        assert sum(pool.running for pool in outcome.pools) == outcome.running
        assert sum(pool.queue for pool in outcome.pools) >= 0
        shares = [pool.kv_use for pool in outcome.pools if pool.up]
        assert not shares or min(shares) - 1e-9 <= outcome.kv_use <= max(shares) + 1e-9
