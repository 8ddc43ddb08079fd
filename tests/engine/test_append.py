"""Requests that are given window by window are served as if the engine had known them from the start."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.engine.engine import Engine, EngineBatch
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.engine.loading import request_records
from llmserve_env.request_table import RequestTable
from tests.engine.random_fleets import FleetCase, random_fleet

SAME = ("progress", "replicas", "pools", "environment")


def given_at_once(fleet: FleetCase) -> EngineBatch:
    case = fleet.case
    engine = Engine(case.deployment, case.requests, case.seed, script=fleet.script)
    for (until_ps, knobs), orders in zip(case.windows, fleet.orders, strict=True):
        engine.order(0, orders)
        engine.serve(knobs, until_ps)
    return engine


def given_by_window(fleet: FleetCase) -> EngineBatch:
    case = fleet.case
    shape = (fleet.script.launch_delays_ps.shape[1], len(fleet.script.capacity))
    engine = EngineBatch(case.deployment, 1, len(case.requests), script_shape=shape)
    engine.load(0, RequestTable.of([], [], []), case.seed, fleet.script)
    rows, given = request_records(case.requests, case.deployment.block_tokens), 0
    for (until_ps, knobs), orders in zip(case.windows, fleet.orders, strict=True):
        arrived = int(np.searchsorted(case.requests.arrival_at_ps, until_ps))
        engine.append(0, rows[given:arrived])
        given = arrived
        engine.order(0, orders)
        for knob in (row.on(case.deployment) for row in KNOBS):
            value = getattr(knobs, knob.name)
            engine.knobs[0][knob.name] = knob.default if value is None else knob.number(value)
        engine.advance(np.array([until_ps]))
    engine.append(0, rows[given:])
    return engine


@pytest.mark.parametrize("seed", range(40))
def test_requests_given_window_by_window_equal_a_table_given_at_once(seed: int) -> None:
    fleet = random_fleet(seed)
    whole, parts = given_at_once(fleet), given_by_window(fleet)
    for name in SAME:
        assert getattr(whole.state, name).tobytes() == getattr(parts.state, name).tobytes(), name


def test_requests_from_the_past_or_too_many_are_refused() -> None:
    fleet = random_fleet(0)
    case = fleet.case
    engine = Engine(case.deployment, case.requests, case.seed, script=fleet.script)
    rows = request_records(case.requests, case.deployment.block_tokens)
    with pytest.raises(ValueError, match="more requests exceed"):
        engine.append(0, rows[:1])
    small = EngineBatch(case.deployment, 1, len(rows), script_shape=(fleet.script.launch_delays_ps.shape[1], 9))
    small.load(0, RequestTable.of([], [], []), case.seed, fleet.script)
    small.append(0, rows[1:2])
    with pytest.raises(ValueError, match="must arrive in order"):
        small.append(0, rows[:1])
