"""INV-5: the clock, the iterations of a replica and the log never go back in time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from llmserve_env.engine.knobs import ServingKnobs
from tests.engine.random_cases import random_case
from tests.laws.observing import engine_of, law, log_of, seeds, serve_case, serve_logged, windows_of
from tests.laws.plain_cases import steady_case


@given(seed=seeds)
@law
def test_the_clock_stands_at_the_end_of_each_window(seed: int) -> None:
    case = random_case(seed)
    engine = engine_of(case)
    assert [engine.now_ps for _ in windows_of(engine, case)] == [until_ps for until_ps, _ in case.windows]


@given(seed=seeds)
@law
def test_iterations_take_time_and_are_scheduled_in_order(seed: int) -> None:
    case = random_case(seed)
    steps = log_of(serve_logged(case)).steps
    for r in range(case.deployment.max_num_replicas):
        _, scheduled_at, start, end = steps[steps[:, 0] == r].T
        assert (np.diff(scheduled_at) >= 0).all()
        assert (scheduled_at <= start).all()
        assert (start < end).all()


@given(seed=seeds)
@law
def test_iterations_that_nothing_cuts_short_do_not_overlap(seed: int) -> None:
    """A reload or restart loses the iteration under way; otherwise each starts after the end of the previous one."""
    _, _, start, end = log_of(serve_logged(steady_case(seed))).steps.T
    assert (start[1:] >= end[:-1]).all()


@given(seed=seeds)
@law
def test_tokens_of_a_replica_are_emitted_in_order(seed: int) -> None:
    case = random_case(seed)
    tokens = log_of(serve_logged(case)).tokens
    for r in range(case.deployment.max_num_replicas):
        assert (np.diff(tokens[tokens[:, 0] == r, 3]) >= 0).all()


def test_serving_into_the_past_is_refused() -> None:
    case = random_case(1)
    engine = serve_case(case)
    with pytest.raises(ValueError, match="cannot go back in time"):
        engine.serve(ServingKnobs(), engine.now_ps - 1)
