"""INV-2: every token that reaches a client is counted once, and a finished request has exactly its tokens."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from llmserve_env.engine.layout import FINISHED
from tests.engine.random_cases import random_case
from tests.laws.observing import counted, engine_of, law, log_of, seeds, serve_case, serve_logged, windows_of
from tests.laws.plain_cases import steady_case


@given(seed=seeds)
@law
def test_counted_output_tokens_are_those_that_requests_have_emitted(seed: int) -> None:
    case = random_case(seed)
    engine = engine_of(case)
    total = 0
    for _ in windows_of(engine, case):
        total += counted(engine, "output_tokens")
        emitted = engine.request_records()["emitted"]
        assert total == int(emitted.sum())
        assert counted(engine, "accepted_tokens") <= counted(engine, "drafted_tokens")


@given(seed=seeds)
@law
def test_a_request_is_finished_exactly_when_it_has_all_its_tokens(seed: int) -> None:
    case = random_case(seed)
    records = serve_case(case).request_records()
    assert ((records["emitted"] == case.requests.output_tokens) == (records["status"] == FINISHED)).all()
    assert (records["emitted"] <= case.requests.output_tokens).all()
    assert ((records["emitted"] > 0) == (records["first_token_at_ps"] >= 0)).all()


@given(seed=seeds)
@law
def test_an_undisturbed_request_computes_each_of_its_tokens_once(seed: int) -> None:
    """All but the last output token pass through the model; drafts come on top, and nothing else does."""
    case = steady_case(seed, prefix_caching=False)
    engine = serve_logged(case)
    records, items = engine.request_records(), log_of(engine).items
    num_requests = len(case.requests)
    computed = np.bincount(items[:, 1], weights=items[:, 2] - items[:, 4], minlength=num_requests)
    passes = np.bincount(items[:, 1], weights=items[:, 4] > 0, minlength=num_requests)
    undisturbed = (records["status"] == FINISHED) & (records["preemptions"] == 0) & (passes == 0)
    expected = case.requests.prompt_tokens + case.requests.output_tokens - 1
    assert computed[undisturbed].tolist() == expected[undisturbed].tolist()


@given(seed=seeds)
@law
def test_logged_tokens_are_the_requests_tokens(seed: int) -> None:
    engine = serve_logged(random_case(seed))
    tokens = log_of(engine).tokens
    emitted = engine.request_records()["emitted"]
    assert np.bincount(tokens[:, 1], weights=tokens[:, 2], minlength=len(emitted)).tolist() == emitted.tolist()
