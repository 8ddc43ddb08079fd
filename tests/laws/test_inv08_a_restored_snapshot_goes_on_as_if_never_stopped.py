"""INV-8: restoring a snapshot equals never having stopped, in the same engine, in another, and from bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.engine.engine import Engine, EngineSnapshot
from tests.engine.random_cases import Case, random_case, random_knobs
from tests.laws.observing import digest, engine_of, law, seeds, serve_case

stops = st.floats(0.0, 1.0)


def serve_from(engine: Engine, case: Case, first: int) -> str:
    for until_ps, knobs in case.windows[first:]:
        engine.serve(knobs, until_ps)
    return digest(engine)


def stopped(case: Case, stop: float) -> tuple[Engine, int]:
    """An engine after some of its windows, and their number."""
    engine, first = engine_of(case), int(stop * len(case.windows))
    for until_ps, knobs in case.windows[:first]:
        engine.serve(knobs, until_ps)
    return engine, first


@given(seed=seeds, stop=stops)
@law
def test_a_branch_leaves_no_trace(seed: int, stop: float) -> None:
    case = random_case(seed)
    engine, first = stopped(case, stop)
    snapshot = engine.snapshot()
    engine.serve(random_knobs(seed + 1, case.deployment), case.windows[-1][0])
    engine.restore(snapshot)
    assert serve_from(engine, case, first) == digest(serve_case(case))


@given(seed=seeds, stop=stops)
@law
def test_bytes_carry_a_snapshot_to_another_engine(seed: int, stop: float) -> None:
    case = random_case(seed)
    engine, first = stopped(case, stop)
    stored = [(array.tobytes(), array.dtype, array.shape) for array in engine.snapshot().arrays]
    loaded = tuple(np.frombuffer(data, dtype).reshape(shape) for data, dtype, shape in stored)
    other = engine_of(case)
    other.restore(EngineSnapshot(loaded))
    assert serve_from(other, case, first) == digest(serve_case(case))


def test_a_snapshot_does_not_change_with_its_engine() -> None:
    case = random_case(4)
    engine, first = stopped(case, 0.5)
    snapshot = engine.snapshot()
    before = [array.tobytes() for array in snapshot.arrays]
    serve_from(engine, case, first)
    assert [array.tobytes() for array in snapshot.arrays] == before
    assert snapshot.num_bytes == sum(len(data) for data in before)
