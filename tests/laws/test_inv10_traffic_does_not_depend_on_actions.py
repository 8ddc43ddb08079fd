"""INV-10: knobs change what happens to requests, never which requests arrive or which drafts would be accepted."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from llmserve_env.engine.knobs import ServingKnobs
from tests.engine.random_cases import Case, random_case, random_knobs
from tests.laws.observing import counted, emissions, engine_of, law, seeds, serve_case, serve_logged, windows_of
from tests.laws.plain_cases import steady_case


def arrivals(case: Case) -> list[tuple[int, int]]:
    engine = engine_of(case)
    return [(counted(engine, "arrived"), counted(engine, "arrived_prompt_tokens")) for _ in windows_of(engine, case)]


@given(seed=seeds, other=seeds)
@law
def test_arrivals_of_each_window_are_the_same_under_other_knobs(seed: int, other: int) -> None:
    case = random_case(seed)
    windows = tuple((until, random_knobs(other + i, case.deployment)) for i, (until, _) in enumerate(case.windows))
    assert arrivals(case) == arrivals(replace(case, windows=windows))


@given(seed=seeds)
@law
def test_serving_does_not_write_to_the_requests(seed: int) -> None:
    case = random_case(seed)
    before = engine_of(case).state.requests.tobytes()
    assert serve_case(case).state.requests.tobytes() == before


@given(seed=seeds, depths=st.tuples(st.integers(1, 8), st.integers(1, 8)))
@law
def test_a_draft_has_the_same_fate_at_every_depth(seed: int, depths: tuple[int, int]) -> None:
    case = steady_case(seed, async_scheduling=False)
    assume(case.deployment.costs.draft is not None)
    first, second = (draft_verdicts(case, depth) for depth in depths)
    shared = first.keys() & second.keys()
    assert shared or not first or not second
    assert {key: first[key] for key in shared} == {key: second[key] for key in shared}


def draft_verdicts(case: Case, depth: int) -> dict[tuple[int, int], bool]:
    """Whether the draft for (request, output position) was accepted, where one was judged."""
    knobs = ServingKnobs(batch_cap=4, speculation_depth=depth)
    engine = serve_logged(replace(case, windows=((case.windows[0][0], knobs),)))
    verdicts: dict[tuple[int, int], bool] = {}
    emitted = dict.fromkeys(range(len(case.requests)), 0)
    for request, tokens, drafts in emissions(engine):
        position = emitted[request]
        emitted[request] += tokens
        verdicts.update({(request, position + i): True for i in range(tokens - 1)})
        if tokens <= drafts and emitted[request] < case.requests.output_tokens[request]:
            verdicts[request, position + tokens - 1] = False
    return verdicts
