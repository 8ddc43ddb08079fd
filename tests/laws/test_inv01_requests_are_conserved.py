"""INV-1: every request is in exactly one place, and the counters agree."""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import given
from numpy.typing import NDArray

from llmserve_env.engine.layout import ABANDONED, FINISHED, PENDING, REJECTED, RUNNING, TRANSFERRING, WAITING
from tests.engine.random_cases import Case, random_case
from tests.laws.observing import (
    counted,
    engine_of,
    law,
    running_ids,
    seeds,
    serve_case,
    transferring_ids,
    waiting_ids,
    windows_of,
)

ENDS = {"finished": FINISHED, "rejected": REJECTED, "abandoned": ABANDONED}


def seen_at_ps(case: Case) -> NDArray[np.int64]:
    """When requests have passed the front end."""
    at_ps: NDArray[np.int64] = case.requests.arrival_at_ps + case.deployment.host.front_end_ps
    return at_ps


@given(seed=seeds)
@law
def test_every_request_is_in_exactly_one_place(seed: int) -> None:
    case = random_case(seed)
    engine = engine_of(case)
    for _ in windows_of(engine, case):
        status = engine.request_records()["status"]
        places = {
            PENDING: np.flatnonzero(seen_at_ps(case) >= engine.now_ps).tolist(),
            RUNNING: list(chain.from_iterable(running_ids(engine))),
            WAITING: list(chain.from_iterable(waiting_ids(engine))),
            TRANSFERRING: transferring_ids(engine),
        }
        assert {place: np.flatnonzero(status == place).tolist() for place in places} == {
            place: sorted(ids) for place, ids in places.items()
        }


@given(seed=seeds)
@law
def test_offered_requests_are_counted_once_at_every_window(seed: int) -> None:
    case = random_case(seed)
    engine = engine_of(case)
    totals = dict.fromkeys(("arrived", *ENDS), 0)
    for _ in windows_of(engine, case):
        for name in totals:
            totals[name] += counted(engine, name)
        status = engine.request_records()["status"]
        assert totals["arrived"] == int((seen_at_ps(case) < engine.now_ps).sum())
        assert {name: totals[name] for name in ENDS} == {name: int((status == end).sum()) for name, end in ENDS.items()}
        still_here = int(np.isin(status, (WAITING, RUNNING, TRANSFERRING)).sum())
        assert totals["arrived"] == still_here + sum(totals[name] for name in ENDS)


@given(seed=seeds)
@law
def test_the_number_waiting_is_the_length_of_the_queues(seed: int) -> None:
    engine = serve_case(random_case(seed))
    assert engine.state.replicas[0]["num_waiting"].tolist() == [len(ids) for ids in waiting_ids(engine)]
