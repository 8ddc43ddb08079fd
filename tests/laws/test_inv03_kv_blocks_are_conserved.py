"""INV-3: blocks in use lie between none and the pool's size, and are exactly those that running requests hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.random_cases import Case, random_case
from tests.laws.observing import engine_of, law, pools, seeds, windows_of


@given(seed=seeds, prefix_caching=st.booleans())
@law
def test_blocks_in_use_are_the_blocks_held(seed: int, prefix_caching: bool) -> None:
    case = with_prefix_caching(random_case(seed), prefix_caching)
    engine = engine_of(case)
    for _ in windows_of(engine, case):
        for pool in pools(engine):
            assert 0 <= pool.used_blocks <= pool.num_blocks
            assert pool.used_blocks + pool.free_blocks == pool.num_blocks
            if not prefix_caching:
                assert pool.used_blocks == sum(pool.held_blocks)


@given(seed=seeds)
@law
def test_a_cached_block_is_referenced_once_by_each_request_that_holds_it(seed: int) -> None:
    case = with_prefix_caching(random_case(seed), True)
    engine = engine_of(case)
    for _ in windows_of(engine, case):
        for pool in pools(engine):
            assert pool.references == pool.holders_of_block
            assert pool.used_blocks == len(pool.holders_of_block) + pool.own_blocks


@given(seed=seeds)
@law
def test_the_pool_has_the_size_that_knobs_and_tier_give_it(seed: int) -> None:
    case = random_case(seed)
    engine = engine_of(case)
    for number in windows_of(engine, case):
        knobs = case.windows[number][1]
        for pool, tier in zip(pools(engine), engine.state.replicas[0]["tier"].tolist(), strict=True):
            if not pool.is_stale:
                speculating = knobs.speculation_depth > 0
                assert pool.num_blocks == case.deployment.num_blocks(knobs.kv_budget_fraction, tier, speculating)


def with_prefix_caching(case: Case, on: bool) -> Case:
    return replace(case, deployment=replace(case.deployment, prefix_caching=on))
