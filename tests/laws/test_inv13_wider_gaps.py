"""INV-13: when doubled gaps between arrivals delay no request, when they do, and the effect of scaling time."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmserve_env.engine.costs import Curve, DraftCosts, GpuCosts, HostCosts, HostTime, TierCosts
from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.request_table import RequestTable
from llmserve_env.units import NEVER_PS, PS_PER_MS
from tests.engine.random_cases import Case
from tests.laws.observing import law, seeds, serve_case
from tests.laws.plain_cases import LONG_AFTER_PS, ONE_BY_ONE, patient, plain_deployment, steady_case

NOTHING_LOOKS_AT_THE_QUEUE = {"long_prefill_threshold": 0, "waiting_room": (1_000,) * 8, "num_blocks_override": 10_000}

Times = TypeVar("Times", TierCosts, DraftCosts, HostCosts, HostTime)


def first_tokens(case: Case, requests: RequestTable, knobs: ServingKnobs) -> NDArray[np.int64]:
    engine = Engine(case.deployment, requests, case.seed)
    engine.serve(knobs, LONG_AFTER_PS)
    return engine.request_records()["first_token_at_ps"] - requests.arrival_at_ps


@given(seed=seeds)
@law
def test_one_at_a_time_doubled_gaps_delay_nobody(seed: int) -> None:
    """Service does not depend on the queue: no long-prefill threshold and no asynchronous scheduling."""
    case = steady_case(seed, prefix_caching=False, async_scheduling=False, **NOTHING_LOOKS_AT_THE_QUEUE)
    near = patient(case.requests)
    far = replace(near, arrival_at_ps=2 * near.arrival_at_ps)
    assert (first_tokens(case, far, ONE_BY_ONE) <= first_tokens(case, near, ONE_BY_ONE)).all()


def test_in_a_batch_a_later_arrival_can_wait_longer() -> None:
    """The doubled gap moves the second arrival from the end of one iteration to the beginning of another."""
    deployment = plain_deployment()
    waits = []
    for gap_ms in (0.9, 1.8):
        table = RequestTable.of([0, round(gap_ms * PS_PER_MS)], [1, 1], [50, 1])
        engine = Engine(deployment, table, seed=0)
        engine.serve(ServingKnobs(batch_cap=2), LONG_AFTER_PS)
        waits.append(int(engine.request_records()["first_token_at_ps"][1] - table.arrival_at_ps[1]))
    assert waits[0] < waits[1]


@given(seed=seeds, factor=st.integers(2, 5))
@law
def test_slower_hardware_and_slower_clients_stretch_every_time(seed: int, factor: int) -> None:
    """With every cost and gap multiplied, every instant is multiplied, to the picosecond."""
    case = steady_case(seed)
    requests = case.requests
    slow_requests = replace(
        requests,
        arrival_at_ps=factor * requests.arrival_at_ps,
        patience_ps=np.where(requests.patience_ps == NEVER_PS, NEVER_PS, factor * requests.patience_ps),
        ttft_slo_ps=factor * requests.ttft_slo_ps,
    )
    slow = Case(
        replace(
            case.deployment,
            costs=slower(case.deployment.costs, factor),
            host=stretched(case.deployment.host, factor),
        ),
        slow_requests,
        case.windows,
        case.seed,
    )
    fast_records, slow_records = serve_case(case).request_records(), serve_case(slow).request_records()
    assert slow_records["status"].tolist() == fast_records["status"].tolist()
    for name in ("first_token_at_ps", "finished_at_ps"):
        happened = fast_records[name] >= 0
        assert (slow_records[name] == np.where(happened, factor * fast_records[name], -1)).all()


def slower(costs: GpuCosts, factor: int) -> GpuCosts:
    """The costs with every time multiplied."""
    tiers = {number: stretched(tier, factor) for number, tier in costs.tiers.items()}
    return replace(costs, tiers=tiers, draft=stretched(costs.draft, factor) if costs.draft else None)


def stretched(costs: Times, factor: int) -> Times:
    changes: dict[str, Any] = {}
    for name in (field.name for field in fields(costs)):
        value = getattr(costs, name)
        if isinstance(value, Curve):
            changes[name] = stretched_curve(value, factor)
        elif isinstance(value, tuple):
            changes[name] = tuple(stretched_curve(curve, factor) for curve in value)
        elif isinstance(value, HostTime):
            changes[name] = stretched(value, factor)
        elif name.endswith("_ps"):
            changes[name] = factor * value
    return replace(costs, **changes)


def stretched_curve(curve: Curve, factor: int) -> Curve:
    return Curve(curve.x, tuple(factor * ps for ps in curve.ps))
