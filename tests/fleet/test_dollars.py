"""Prices: the ladder of credits and the rent of replicas."""

from __future__ import annotations

import pytest

from llmserve_env.fleet.dollars import Account, credit_share, rental_usd
from llmserve_env.fleet.task import load_fleet_task

PRICES = load_fleet_task("spot_hedge").prices


@pytest.mark.parametrize(
    ("attainment", "share"),
    [
        (1.0, 0.0),
        (0.999, 0.0),
        (0.9989999, 0.10),
        (0.9945, 0.175),
        (0.99, 0.25),
        (0.97, 0.625),
        (0.95, 1.0),
        (0.5, 1.0),
    ],
)
def test_credits_climb_the_ladder_and_are_prorated_between_its_rungs(attainment: float, share: float) -> None:
    assert credit_share(attainment, PRICES.credits) == pytest.approx(share, abs=1e-4)


def test_without_a_ladder_there_are_no_credits() -> None:
    assert credit_share(0.0, ()) == 0.0


def test_a_sleeping_replica_costs_a_part_of_a_serving_one() -> None:
    serving = rental_usd(PRICES, "on_demand", 2, 3_600.0, 0.0)
    assert serving == pytest.approx(2 * 2.99)
    assert rental_usd(PRICES, "on_demand", 2, 0.0, 3_600.0) == pytest.approx(0.3 * serving)
    assert rental_usd(PRICES, "spot", 2, 3_600.0, 0.0) == pytest.approx(2 * 1.05)


def test_credits_are_paid_on_what_waiting_clients_paid() -> None:
    account = Account(PRICES, interactive_usd=100.0, batch_usd=50.0, bill_usd=30.0, judged=1_000, met=990)
    assert account.credits_usd == pytest.approx(25.0)
    assert account.net_usd == pytest.approx(100.0 + 50.0 - 30.0 - 25.0)
