"""INV-12: where more KV blocks mean no more preemptions, and where they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.engine.engine import Engine
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.request_table import RequestTable
from tests.engine.random_cases import Case
from tests.laws.observing import JIT_IS_OFF, law, seeds
from tests.laws.plain_cases import LONG_AFTER_PS, patient, plain_deployment, steady_case


def preemptions(case: Case, num_blocks: int, batch_cap: int) -> int:
    engine = Engine(replace(case.deployment, num_blocks_override=num_blocks), patient(case.requests), case.seed)
    engine.serve(ServingKnobs(batch_cap=batch_cap), LONG_AFTER_PS)
    return int(engine.request_records()["preemptions"].sum())


def largest_footprints(case: Case) -> list[int]:
    """The most blocks that each request can hold, largest first."""
    tokens = case.requests.prompt_tokens + case.requests.output_tokens
    return sorted((-(-int(n) // case.deployment.block_tokens) for n in tokens), reverse=True)


@given(seed=seeds, extra=st.integers(0, 50), batch_cap=st.sampled_from([1, 2, 4, 9, 64]))
@law
def test_a_pool_for_all_that_may_run_at_once_preempts_nobody(seed: int, extra: int, batch_cap: int) -> None:
    case = steady_case(seed)
    enough = sum(largest_footprints(case)[:batch_cap])
    assert preemptions(case, enough + extra, batch_cap) == 0


@given(seed=seeds, extra=st.integers(0, 50))
@law
def test_one_at_a_time_nobody_is_preempted_in_any_pool_that_holds_each(seed: int, extra: int) -> None:
    case = steady_case(seed)
    assert preemptions(case, largest_footprints(case)[0] + extra, 1) == 0


def test_over_many_runs_more_blocks_preempt_less() -> None:
    """The tendency behind the folklore, as a sum over random first-come-first-served runs."""
    cases = [steady_case(seed) for seed in range(5 if JIT_IS_OFF else 300)]
    smallest = [largest_footprints(case)[0] for case in cases]
    totals = [
        sum(preemptions(case, factor * blocks, 64) for case, blocks in zip(cases, smallest, strict=True))
        for factor in (1, 2, 4, 8, 64)
    ]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > totals[-1] == 0


@pytest.mark.parametrize(("num_blocks", "expected"), [(3, 0), (4, 1), (6, 0)])
def test_one_block_more_can_preempt_one_request_more(num_blocks: int, expected: int) -> None:
    """Both requests grow from two blocks to three: three blocks serve them in turn, four cannot hold both."""
    table = RequestTable.of([0, 0], [8, 8], [4, 4])
    engine = Engine(plain_deployment(num_blocks, block_tokens=4), table, seed=0)
    engine.serve(ServingKnobs(batch_cap=2), LONG_AFTER_PS)
    assert int(engine.request_records()["preemptions"].sum()) == expected
