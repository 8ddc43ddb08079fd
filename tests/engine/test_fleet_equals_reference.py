"""Fleets of the compiled engine equal those of the reference, whatever boots, drains, sleeps, flips or is taken."""

from __future__ import annotations

from typing import Any

import pytest

from llmserve_env.engine.engine import Engine
from llmserve_env.engine.fleet import STATE_NAMES
from tests.engine.random_fleets import FleetCase, random_fleet
from tests.engine.test_equals_reference import CASES, COUNTERS, JIT_IS_OFF, expected, observed
from tests.reference.engine import ReferenceEngine

TOTALS = ("capacity", "launches", "refused", "failed", "taken", "serving_ps", "asleep_ps")


def fleet_of(engine: Engine) -> dict[str, Any]:
    """Where the replicas stand, and the totals of the pools."""
    pools = engine.state.pools[0]
    return {
        "states": [STATE_NAMES[state] for state in engine.state.replicas[0]["life"]["state"]],
        **{name: pools[name].tolist() for name in TOTALS},
    }


def expected_fleet(reference: ReferenceEngine) -> dict[str, Any]:
    """The same of the reference."""
    assert reference.fleet is not None
    pools = reference.fleet.pools
    return {
        "states": [life.state for pool in pools for life in pool.lives],
        **{name: [getattr(pool, name) for pool in pools] for name in TOTALS},
    }


def difference(fleet: FleetCase, step_every_iteration: bool = False) -> str | None:
    """The first window and field in which the two engines differ."""
    case = fleet.case
    engine = Engine(
        case.deployment, case.requests, case.seed, step_every_iteration=step_every_iteration, script=fleet.script
    )
    reference = ReferenceEngine(case.deployment, case.requests, case.seed, script=fleet.script)
    totals = dict.fromkeys(COUNTERS, 0)
    for number, ((until_ps, knobs), orders) in enumerate(zip(case.windows, fleet.orders, strict=True)):
        engine.order(0, orders)
        engine.serve(knobs, until_ps)
        reference.advance(knobs, until_ps, orders)
        for name in COUNTERS:
            totals[name] += int(engine.state.window[0][name])
        got = {**fleet_of(engine), **observed(engine, totals)}
        want = {**expected_fleet(reference), **expected(reference)}
        for name in want:
            if got[name] != want[name]:
                return f"window {number} until {until_ps}, {name}: engine {got[name]}, reference {want[name]}"
    return None


@pytest.mark.parametrize("first", range(0, CASES, 25))
def test_a_fleet_equals_the_reference_on_random_cases(first: int) -> None:
    differences = {seed: difference(random_fleet(seed)) for seed in range(first, first + 25)}
    assert {seed: text for seed, text in differences.items() if text} == {}


@pytest.mark.skipif(JIT_IS_OFF, reason="about the cases, not about how the kernels run")
def test_random_fleets_exercise_every_state() -> None:
    seen: set[str] = set()
    totals = dict.fromkeys(TOTALS, 0)
    for seed in range(120):
        fleet = random_fleet(seed)
        engine = Engine(fleet.case.deployment, fleet.case.requests, fleet.case.seed, script=fleet.script)
        for (until_ps, knobs), orders in zip(fleet.case.windows, fleet.orders, strict=True):
            engine.order(0, orders)
            engine.serve(knobs, until_ps)
            seen |= set(fleet_of(engine)["states"])
        for name in TOTALS:
            totals[name] += sum(fleet_of(engine)[name])
    assert seen == set(STATE_NAMES)
    assert all(count > 0 for count in totals.values()), totals
