"""What training on the surrogate pays for."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.fleet.fluid.episodes import credit_shares
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.task import load_fleet_task
from llmserve_env.training.fleet_episodes import FleetCorrections, broken_promise_price
from tests.fleet.worlds import plain_calibration, short_task, traffic_of

PRICES = load_fleet_task("elastic_fleet").prices
ALLOWED = 1.0 - PRICES.credits[0].below


def price(projected: float, left: float) -> float:
    return float(broken_promise_price(np.array([projected]), left, PRICES)[0])


def test_promises_that_are_safe_to_break_cost_nothing() -> None:
    assert price(0.1, left=0.0) < 1e-3 * price(1.0, left=0.0)


def test_the_promises_that_decide_about_the_rung_cost_most() -> None:
    for left in (0.0, 0.5, 1.0):
        prices = [price(projected, left) for projected in np.linspace(0.0, 6.0, 61)]
        assert 0.9 <= np.linspace(0.0, 6.0, 61)[int(np.argmax(prices))] <= 1.5


@pytest.mark.parametrize("broken", [3.0, 6.0, 9.0])
def test_the_prices_of_all_that_was_broken_add_up_to_the_credits(broken: float) -> None:
    each = np.linspace(0.0, broken, 4001)
    paid = np.trapezoid(broken_promise_price(each, 0.0, PRICES), each * ALLOWED)
    assert paid == pytest.approx(credit_shares(np.array([1.0 - broken * ALLOWED]), PRICES)[0], rel=0.02)


def test_a_task_without_credits_charges_nothing() -> None:
    free = PRICES.model_copy(update={"credits": ()})
    assert broken_promise_price(np.array([0.0, 5.0]), 1.0, free).tolist() == [0.0, 0.0]


def test_a_policy_that_corrects_nothing_earns_what_the_rule_does() -> None:
    task = short_task("elastic_fleet")
    worlds = Worlds.of([traffic_of("elastic_fleet", seed) for seed in (1, 2)])
    rule = {"weight_request_rps": 0.9, "batch_share": 0.0}
    episodes = FleetCorrections(task, worlds, plain_calibration(), rule, 1, 2, 0)
    for _ in range(task.steps):
        episodes.observe()
        rewards, ended = episodes.step(np.zeros((2, episodes.num_actions)))
        assert rewards == pytest.approx([0.0, 0.0], abs=1e-9)
    assert ended.all()
