"""INV-4: no token before its request has arrived and the model has run long enough; tokens come in order."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH
from llmserve_env.engine.layout import ABANDONED, FINISHED, REJECTED
from tests.engine.random_cases import Case, random_case
from tests.laws.observing import law, log_of, seeds, serve_case, serve_logged
from tests.reference.costs import curve_ps


def shortest_iteration_ps(case: Case) -> int:
    """One sequence, one token, on the fastest tier."""
    return min(
        tier.overhead_ps
        + tier.per_sequence_ps
        + min(tier.per_decode_token_ps, tier.per_prefill_token_ps)
        + curve_ps(tier.gemm, 1)
        for tier in case.deployment.costs.tiers.values()
    )


@given(seed=seeds)
@law
def test_no_first_token_before_arrival_and_the_shortest_prefill(seed: int) -> None:
    case = random_case(seed)
    records, requests = serve_case(case).request_records(), case.requests
    # A cached prefix can leave a single iteration of prefill.
    tokens_per_iteration = 2**40 if case.deployment.prefix_caching else case.deployment.token_budget
    iterations = -(-requests.prompt_tokens // tokens_per_iteration)
    earliest = requests.arrival_at_ps + iterations * shortest_iteration_ps(case)
    served = records["first_token_at_ps"] >= 0
    assert (records["first_token_at_ps"] >= earliest)[served].all()


@given(seed=seeds)
@law
def test_no_finish_before_the_shortest_decode(seed: int) -> None:
    case = random_case(seed)
    records = serve_case(case).request_records()
    finished = records["status"] == FINISHED
    iterations = -(-(case.requests.output_tokens - 1) // (1 + MAX_SPECULATION_DEPTH))
    shortest = iterations * shortest_iteration_ps(case)
    assert (records["finished_at_ps"] - records["first_token_at_ps"] >= shortest)[finished].all()


@given(seed=seeds)
@law
def test_tokens_of_a_request_come_in_order_from_first_to_last(seed: int) -> None:
    engine = serve_logged(random_case(seed))
    records, tokens = engine.request_records(), log_of(engine).tokens
    for q in np.unique(tokens[:, 1]).tolist():
        times = tokens[tokens[:, 1] == q, 3]
        assert (np.diff(times) > 0).all()
        assert times[0] == records["first_token_at_ps"][q]
        if records["status"][q] == FINISHED:
            assert times[-1] == records["finished_at_ps"][q]


@given(seed=seeds)
@law
def test_who_leaves_unserved_leaves_in_time(seed: int) -> None:
    case = random_case(seed)
    engine = serve_case(case)
    records, requests = engine.request_records(), case.requests
    abandoned, rejected = records["status"] == ABANDONED, records["status"] == REJECTED
    deadlines = requests.arrival_at_ps + requests.patience_ps
    assert (records["first_token_at_ps"][abandoned] < 0).all()
    assert (records["finished_at_ps"] == deadlines)[abandoned].all()
    assert (deadlines <= engine.now_ps)[abandoned].all()
    assert (records["finished_at_ps"] >= requests.arrival_at_ps)[rejected].all()
