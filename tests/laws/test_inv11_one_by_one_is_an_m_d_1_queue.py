"""INV-11: with a batch cap of one and identical requests the engine is an M/D/1 queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmserve_env.engine.engine import Engine
from llmserve_env.request_table import RequestTable
from tests.laws.observing import JIT_IS_OFF, law, seeds
from tests.laws.plain_cases import LONG_AFTER_PS, ONE_BY_ONE, plain_deployment

PROMPT_TOKENS, OUTPUT_TOKENS = 20, 4


def serve_one_by_one(arrival_at_ps: NDArray[np.int64]) -> Any:
    n = len(arrival_at_ps)
    table = RequestTable.of(arrival_at_ps, np.full(n, PROMPT_TOKENS), np.full(n, OUTPUT_TOKENS))
    engine = Engine(plain_deployment(), table, seed=0)
    engine.serve(ONE_BY_ONE, LONG_AFTER_PS)
    return engine.request_records()


def service_ps() -> tuple[int, int]:
    """(service time, time to first token) of a single request."""
    records = serve_one_by_one(np.zeros(1, np.int64))
    return int(records["finished_at_ps"][0]), int(records["first_token_at_ps"][0])


@given(seed=seeds, load=st.floats(0.1, 2.0))
@law
def test_each_wait_follows_from_the_one_before(seed: int, load: float) -> None:
    """Lindley's recursion, to the picosecond: a wait is the previous wait and service minus the gap, or 0."""
    service, to_first = service_ps()
    gaps = np.random.default_rng(seed).exponential(service / load, 60).astype(np.int64)
    records = serve_one_by_one(gaps.cumsum())
    wait, waits = 0, []
    for gap in gaps[1:].tolist():
        waits.append(wait)
        wait = max(0, wait + service - gap)
    waits.append(wait)
    arrivals = gaps.cumsum()
    assert (records["first_token_at_ps"] - arrivals - to_first).tolist() == waits
    assert (records["finished_at_ps"] - arrivals - service).tolist() == waits


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_wait_is_that_of_an_m_d_1_queue(load: float) -> None:
    """Pollaczek and Khinchine: load * service / (2 (1 - load)); the mean of a finite run lies within a few per cent."""
    service, to_first = service_ps()
    num_requests = 2_000 if JIT_IS_OFF else 200_000
    arrivals = np.random.default_rng(11).exponential(service / load, num_requests).cumsum().astype(np.int64)
    waits = serve_one_by_one(arrivals)["first_token_at_ps"] - arrivals - to_first
    expected = load * service / (2 * (1 - load))
    assert waits.mean() == pytest.approx(expected, rel=0.25 if JIT_IS_OFF else 0.05)
