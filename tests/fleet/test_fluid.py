"""The surrogate keeps the engine's books: replicas, dollars and observations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.dollars import credit_share
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.fluid import calibration
from llmserve_env.fleet.fluid.calibration import arriving_shares, misfit, replay
from llmserve_env.fleet.fluid.episodes import FluidEpisodes, credit_shares
from llmserve_env.fleet.fluid.recording import Recording, Wandering, lead_in_turn
from llmserve_env.fleet.fluid.replicas import PoolTimes, Replicas
from llmserve_env.fleet.fluid.service import BUSY_KNOTS, RUNNING_KNOTS
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.rules.rule import Decisions
from llmserve_env.fleet.task import TASKS, FleetTask, load_fleet_task
from tests.fleet.worlds import plain_calibration, short_task, traffic_of

LIMIT = 12.0
BY_ROLE = ("decode.running", "decode.kv_use", "prefill.running", "prefill.kv_use")


def fleet_of(replicas: float, delays: list[float]) -> Replicas:
    """One pool of one episode."""
    none = np.zeros(1)
    times = PoolTimes(wake=np.full(1, 0.2), notice=np.ones(1), flip=none, drain=none, partner=(-1,))
    return Replicas(np.full((1, 1), replicas), np.full(1, LIMIT), times, np.array([[delays]]), 40)


def ordered(fleet: Replicas, serving: float, asleep: float = 0.0, capacity: float = LIMIT) -> None:
    fleet.order(np.full((1, 1), serving), np.full((1, 1), asleep), np.full((1, 1), capacity))


def usual_decisions(task: FleetTask, share: float, episodes: int) -> Decisions:
    counts = [min(max(round(share * pool.usual_replicas), 1), pool.max_replicas) for pool in task.pools]
    serving = np.tile(np.array(counts, np.float64), (episodes, 1))
    budget = np.full(episodes, float(task.replica.token_budget))
    return Decisions(serving, np.zeros_like(serving), np.zeros(episodes), budget)


class TestReplicas:
    def test_a_launched_replica_serves_after_its_delay_and_is_billed_before(self) -> None:
        fleet = fleet_of(2, [3.5])
        served, billed = [], []
        for _ in range(5):
            ordered(fleet, 3)
            served.append(fleet.serving[0, 0])
            billed.append(fleet.billed[0, 0])
            fleet.advance()
        assert served == [2, 2, 2, 2.5, 3]
        assert billed == [3] * 5

    def test_a_launch_that_fails_is_billed_and_never_serves(self) -> None:
        fleet = fleet_of(1, [-1.5, 1.5])
        for _ in range(2):
            ordered(fleet, 2)
            fleet.advance()
        assert (fleet.up[0, 0], fleet.failed[0, 0]) == (1, 1)

    def test_sleeping_replicas_wake_within_the_window(self) -> None:
        fleet = fleet_of(2, [2.0])
        for _ in range(4):
            ordered(fleet, 2, asleep=1)
            fleet.advance()
        assert fleet.asleep[0, 0] == 1
        ordered(fleet, 3, asleep=0)
        assert fleet.serving[0, 0] == pytest.approx(2.8)

    def test_lost_capacity_takes_replicas_away(self) -> None:
        fleet = fleet_of(5, [2.0])
        ordered(fleet, 5, capacity=0.0)
        assert (fleet.up[0, 0], fleet.taken[0, 0], fleet.refused[0, 0]) == (0, 5, 5)

    @settings(max_examples=60, deadline=None)
    @given(
        orders=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), st.sampled_from([0, 6, 12])), max_size=30),
        delays=st.lists(st.floats(0.5, 8.0).map(lambda x: -x if x > 7.0 else x), min_size=1, max_size=5),
    )
    def test_counts_stay_between_nothing_and_the_limit(
        self, orders: list[tuple[int, int, int]], delays: list[float]
    ) -> None:
        fleet = fleet_of(3, delays)
        for serving, asleep, capacity in orders:
            ordered(fleet, serving, asleep, capacity)
            for count in (fleet.up, fleet.asleep, fleet.pending, fleet.serving, fleet.leaving):
                assert -1e-9 <= count[0, 0] <= LIMIT + 1e-9
            assert fleet.up[0, 0] + fleet.pending[0, 0] <= serving + 1e-9
            fleet.advance()


@pytest.mark.parametrize("name", TASKS)
def test_the_bill_is_the_replicas_in_service_times_their_price(name: str) -> None:
    task = short_task(name)
    worlds = Worlds.of([traffic_of(name)])
    is_split = any(pool.role == "prefill" for pool in task.pools)
    episodes = FluidEpisodes(task, worlds, plain_calibration(is_split), np.zeros(1, np.int64))
    total = 0.0
    while not episodes.is_over:
        before = episodes.bill_usd[0]
        episodes.step(usual_decisions(task, 1.0, 1))
        total += episodes.bill_usd[0] - before
        assert episodes.bill_usd[0] > before
    assert total == pytest.approx(episodes.bill_usd[0])


def test_observations_show_the_same_traffic_as_the_engine_does() -> None:
    task, traffic = short_task("elastic_fleet"), traffic_of("elastic_fleet")
    engine = FleetEpisode(task, traffic)
    fluid = FluidEpisodes(task, Worlds.of([traffic]), plain_calibration(), np.zeros(1, np.int64))
    seen = engine.reset()
    decision = FleetDecision((10,), (0,), 0.0, None)
    decisions = Decisions(np.full((1, 1), 10.0), np.zeros((1, 1)), np.zeros(1), np.full(1, 8192.0))
    for _ in range(5):
        own = dict(zip(task.feature_names, fluid.observe()[0], strict=True))
        for name in ("time_s", "time_of_day", "request_rps", "new_prompt_tps", "session_start_rps", "open_sessions"):
            assert own[name] == pytest.approx(getattr(seen, name)), name
        seen = engine.step(decision)[0]
        fluid.step(decisions)


def test_the_same_decisions_bring_the_same_dollars_again() -> None:
    task, worlds = short_task("elastic_fleet"), Worlds.of([traffic_of("elastic_fleet"), traffic_of("elastic_fleet", 2)])

    def played() -> list[float]:
        episodes = FluidEpisodes(task, worlds, plain_calibration(), np.array([0, 1, 0]))
        while not episodes.is_over:
            episodes.step(usual_decisions(task, 1.2, 3))
        return list(episodes.net_usd)

    first = played()
    assert first == played()
    assert first[0] == first[2] != first[1]


def test_a_larger_fleet_keeps_more_promises_and_costs_more() -> None:
    task, worlds = short_task("elastic_fleet"), Worlds.of([traffic_of("elastic_fleet")])
    found = []
    for share in (0.5, 2.0):
        episodes = FluidEpisodes(task, worlds, plain_calibration(), np.zeros(1, np.int64))
        while not episodes.is_over:
            episodes.step(usual_decisions(task, share, 1))
        found.append((episodes.attainment[0], episodes.bill_usd[0]))
    assert found[0] < found[1]


@given(attainment=st.floats(0.0, 1.0))
def test_credits_are_those_of_the_account(attainment: float) -> None:
    prices = load_fleet_task("elastic_fleet").prices
    assert credit_shares(np.array([attainment]), prices)[0] == pytest.approx(credit_share(attainment, prices.credits))


def test_replicas_that_arrive_break_promises_and_those_that_leave_do_not() -> None:
    shares = arriving_shares(np.array([[4.0, 5.0, 5.0, 3.0, 6.0]]))
    assert shares.tolist() == [[0.0, 0.2, 0.0, 0.0, 0.5]]
    curves = replace(plain_calibration().curves, broken_by_arrival=tuple(0.1 + 0.0 * RUNNING_KNOTS))
    batch, nobody_waits = np.full(5, 20.0), np.zeros(5)
    assert curves.attainment(batch, shares[0], nobody_waits) == pytest.approx([1.0, 0.98, 1.0, 1.0, 0.95])


def test_what_an_arrival_breaks_is_not_laid_to_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "TRIALS", 0)
    task, worlds = short_task("elastic_fleet", 240), Worlds.of([traffic_of("elastic_fleet", 1, 240)])
    # One replica more for ten windows, one fewer for ten; what arrives breaks a fifth of its share.
    up = np.where(np.arange(task.steps) // 10 % 2 == 0, 14.0, 13.0)[None, :, None]
    judged = np.full((1, task.steps), 1000.0)
    arriving = arriving_shares(up[..., 0])
    figures = {
        "judged": judged,
        "met": judged * (1.0 - 0.2 * arriving),
        **{name: np.ones_like(judged) for name in ("ttft_ms", "tpot_ms", "queue", *BY_ROLE)},
    }
    found = calibration.fit(task, Recording(worlds, figures, up, np.zeros_like(judged), 512))
    assert found.token_budget == 512
    shown = replay(task, Recording(worlds, figures, up, np.zeros_like(judged), 512), found.flow)
    batch = shown["mean_running"].mean()
    assert np.interp(batch, RUNNING_KNOTS, found.curves.kept) == pytest.approx(1.0)
    assert np.interp(batch, RUNNING_KNOTS, found.curves.broken_by_arrival) == pytest.approx(0.2, rel=0.05)


def test_prefilling_replicas_are_fitted_to_the_time_to_the_first_token() -> None:
    task, worlds = short_task("pd_pools"), Worlds.of([traffic_of("pd_pools")])
    flow, up = plain_calibration(is_split=True).flow, np.tile([2.5, 12.0], (1, task.steps, 1))
    recording = Recording(worlds, {}, up, np.zeros((1, task.steps)), task.replica.token_budget)
    shown = replay(task, recording, flow)
    figures = {
        "ttft_ms": 1e3 * (0.1 + shown["wait_s"]),
        "tpot_ms": 1e3 * shown["tpot_s"],
        "decode.running": shown["running"] * 12.0,
        "queue": shown["waiting"] + shown["unread"],
    }
    recording = replace(recording, figures=figures)
    right = misfit(task, recording, flow)
    assert right < min(misfit(task, recording, replace(flow, prompt_s=flow.prompt_s * factor)) for factor in (0.7, 1.4))


def test_the_queue_that_chance_makes_is_seen_and_is_as_long_as_the_fit_says() -> None:
    task, worlds = short_task("elastic_plain", 240), Worlds.of([traffic_of("elastic_plain", 1, 240)])
    calm = plain_calibration()
    shown = {}
    for waits_s in (0.0, 0.1):
        curves = replace(calm.curves, queue_s=tuple(np.full(len(BUSY_KNOTS), waits_s)))
        episodes, seen = FluidEpisodes(task, worlds, replace(calm, curves=curves), np.zeros(1, np.int64)), []
        while not episodes.is_over:
            figures = dict(zip(task.feature_names, episodes.observe()[0], strict=True))
            seen.append((figures["queue"], figures["request_rps"]))
            episodes.step(usual_decisions(task, 2.0, 1))
        shown[waits_s] = np.array(seen).mean(axis=0)
    assert shown[0.0][0] == 0.0
    assert shown[0.1][0] == pytest.approx(0.1 * shown[0.1][1], rel=0.2)


def test_the_metrics_of_split_roles_add_up_to_those_of_the_fleet() -> None:
    task, worlds = short_task("pd_pools"), Worlds.of([traffic_of("pd_pools")])
    episodes = FluidEpisodes(task, worlds, plain_calibration(is_split=True), np.zeros(1, np.int64))
    while not episodes.is_over:
        seen = dict(zip(task.feature_names, episodes.observe()[0], strict=True))
        for name in ("queue", "running"):
            assert seen[f"prefill.{name}"] + seen[f"decode.{name}"] == pytest.approx(seen[name])
        least, most = sorted((seen["prefill.kv_use"], seen["decode.kv_use"]))
        assert least - 1e-9 <= seen["kv_use"] <= most + 1e-9
        episodes.step(usual_decisions(task, 1.0, 1))


def test_recordings_are_led_by_rules_as_soon_as_these_are_tuned() -> None:
    tuned, untuned = short_task("elastic_fleet"), short_task("elastic_fleet").model_copy(update={"version": 999})
    traffic = traffic_of("elastic_fleet")

    def led_by_rules(task: FleetTask) -> int:
        leaders = [lead_in_turn(task, traffic, np.random.default_rng(0), episode, 512) for episode in range(8)]
        return sum(not isinstance(leader, Wandering) for leader in leaders)

    assert (led_by_rules(tuned), led_by_rules(untuned)) == (4, 0)
