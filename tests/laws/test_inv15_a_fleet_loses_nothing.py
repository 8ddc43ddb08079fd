"""INV-15: a fleet loses no request, and its bill is the time that its replicas were there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from hypothesis import given

from llmserve_env.engine.engine import Engine
from llmserve_env.engine.fleet import ASLEEP, OFF, UP
from llmserve_env.engine.layout import ABANDONED, FINISHED, PENDING, REJECTED, RUNNING, TRANSFERRING, WAITING
from tests.engine.random_fleets import FleetCase, random_fleet
from tests.laws.observing import law, running_ids, seeds, transferring_ids, waiting_ids

PARTS = 8
"""Pieces that a window is cut into, to see what happens inside it."""


def engine_of(fleet: FleetCase) -> Engine:
    return Engine(fleet.case.deployment, fleet.case.requests, fleet.case.seed, script=fleet.script)


def pieces_of(engine: Engine, fleet: FleetCase) -> Iterator[tuple[int, int]]:
    """Serve the case in small pieces; the start and the end of each."""
    began = 0
    for (until_ps, knobs), orders in zip(fleet.case.windows, fleet.orders, strict=True):
        engine.order(0, orders)
        for ended in np.linspace(began, until_ps, PARTS + 1).astype(np.int64)[1:].tolist():
            engine.serve(knobs, ended)
            yield began, ended
            began = ended


@given(seed=seeds)
@law
def test_every_request_that_arrived_is_in_exactly_one_place(seed: int) -> None:
    fleet = random_fleet(seed)
    engine = engine_of(fleet)
    for _ in pieces_of(engine, fleet):
        status = engine.request_records()["status"]
        running, waiting = list(chain(*running_ids(engine))), list(chain(*waiting_ids(engine)))
        assert sorted(running) == np.flatnonzero(status == RUNNING).tolist()
        assert sorted(waiting) == np.flatnonzero(status == WAITING).tolist()
        assert sorted(transferring_ids(engine)) == np.flatnonzero(status == TRANSFERRING).tolist()
        ended = np.isin(status, (PENDING, FINISHED, REJECTED, ABANDONED)).sum()
        assert len(running) + len(waiting) + len(transferring_ids(engine)) + ended == len(status)


@given(seed=seeds)
@law
def test_only_replicas_that_are_up_take_requests(seed: int) -> None:
    fleet = random_fleet(seed)
    engine = engine_of(fleet)
    for _ in pieces_of(engine, fleet):
        replicas = engine.state.replicas[0]
        states = replicas["life"]["state"]
        assert (replicas["in_service"] == (states == UP)).all()
        is_gone = (states == OFF) | (states == ASLEEP)
        assert not (replicas["num_running"] + replicas["num_waiting"] + replicas["used_blocks"])[is_gone].any()


@given(seed=seeds)
@law
def test_the_bill_is_the_time_that_replicas_were_there(seed: int) -> None:
    """At least that of the replicas that served all through a piece, at most that of all replicas."""
    fleet = random_fleet(seed)
    engine = engine_of(fleet)
    pools, replicas = engine.state.pools[0], engine.state.replicas[0]
    lives = replicas["life"]
    before, billed, serving = lives["state"].copy(), 0, 0
    for began, ended in pieces_of(engine, fleet):
        total = int(pools["serving_ps"].sum() + pools["asleep_ps"].sum())
        is_there = (before == UP) & (lives["state"] == UP) & (replicas["available_at_ps"] <= began)
        assert is_there.sum() * (ended - began) <= total - billed <= len(lives) * (ended - began)
        assert engine.state.window[0]["in_service_ps"] == int(pools["serving_ps"].sum()) - serving
        before, billed, serving = lives["state"].copy(), total, int(pools["serving_ps"].sum())


@given(seed=seeds)
@law
def test_a_snapshot_of_a_fleet_goes_on_as_if_never_stopped(seed: int) -> None:
    fleet = random_fleet(seed)
    engine = engine_of(fleet)
    half = len(fleet.case.windows) // 2
    ends = []
    for number, ((until_ps, knobs), orders) in enumerate(zip(fleet.case.windows, fleet.orders, strict=True)):
        if number == half:
            snapshot = engine.snapshot()
        engine.order(0, orders)
        engine.serve(knobs, until_ps)
    ends.append((engine.state.pools.tobytes(), engine.state.replicas.tobytes(), engine.state.progress.tobytes()))
    engine.restore(snapshot)
    for (until_ps, knobs), orders in list(zip(fleet.case.windows, fleet.orders, strict=True))[half:]:
        engine.order(0, orders)
        engine.serve(knobs, until_ps)
    ends.append((engine.state.pools.tobytes(), engine.state.replicas.tobytes(), engine.state.progress.tobytes()))
    assert ends[0] == ends[1]
