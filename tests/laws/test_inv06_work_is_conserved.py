"""INV-6: a replica that has work and is up is never idle."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from llmserve_env.engine.costs import NO_HOST
from tests.engine.random_cases import random_case
from tests.laws.observing import counted, engine_of, is_executing, law, log_of, seeds, serve_logged, windows_of
from tests.laws.plain_cases import steady_case


@given(seed=seeds)
@law
def test_a_replica_with_work_is_executing_or_not_available(seed: int) -> None:
    case = random_case(seed)
    engine = engine_of(case)
    for _ in windows_of(engine, case):
        for r, replica in enumerate(engine.state.replicas[0]):
            has_work = replica["num_running"] + replica["num_waiting"] > 0
            # An iteration may have ended at this very instant; the next one starts with the next window.
            starts_next = replica["free_at_ps"] == engine.now_ps
            if has_work:
                assert is_executing(engine, r) or starts_next or replica["available_at_ps"] > engine.now_ps
            else:
                assert not is_executing(engine, r) or case.deployment.async_scheduling


@given(seed=seeds)
@law
def test_without_a_host_there_is_time_between_two_iterations_only_when_nobody_is_there(seed: int) -> None:
    case = steady_case(seed, host=NO_HOST)
    engine = serve_logged(case)
    _, _, start, end = log_of(engine).steps.T
    records, arrivals = engine.request_records(), case.requests.arrival_at_ps
    for gap in np.flatnonzero(start[1:] > end[:-1]).tolist():
        before = arrivals < start[gap + 1]
        left_at = records["finished_at_ps"]
        assert (left_at >= 0)[before].all()
        assert (left_at <= np.maximum(arrivals, end[gap]))[before].all()


@given(seed=seeds)
@law
def test_without_a_host_busy_time_is_the_time_of_the_iterations(seed: int) -> None:
    case = steady_case(seed, host=NO_HOST)
    engine = serve_logged(case)
    _, _, start, end = log_of(engine).steps.T
    assert counted(engine, "busy_ps") == int((end - start).sum())
    assert counted(engine, "iterations") == len(start)


@given(seed=seeds)
@law
def test_a_host_adds_time_to_iterations_and_none_to_busy_time(seed: int) -> None:
    case = steady_case(seed)
    engine = serve_logged(case)
    _, scheduled, start, end = log_of(engine).steps.T
    assert counted(engine, "busy_ps") <= int((end - start).sum())
    assert (start >= scheduled).all()
    assert (start[1:] >= end[:-1]).all()
