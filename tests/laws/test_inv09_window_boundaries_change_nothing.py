"""INV-9: cutting a window into several with the same knobs changes nothing except the counters of single windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.engine.random_cases import random_case
from tests.laws.observing import counted, engine_of, law, seeds, serve_case, visible

SUMMED = ("arrived", "finished", "rejected", "abandoned", "preemptions", "ooms", "iterations", "output_tokens")


@given(seed=seeds, cuts=st.lists(st.floats(0.0, 1.0), max_size=4))
@law
def test_cut_windows_lead_to_the_same_place(seed: int, cuts: list[float]) -> None:
    case = random_case(seed)
    whole, cut = engine_of(case), engine_of(case)
    for until_ps, knobs in case.windows:
        now_ps, totals = cut.now_ps, dict.fromkeys(SUMMED, 0)
        for cut_ps in [*(now_ps + int(share * (until_ps - now_ps)) for share in sorted(cuts)), until_ps]:
            cut.serve(knobs, cut_ps)
            for name in SUMMED:
                totals[name] += counted(cut, name)
        whole.serve(knobs, until_ps)
        assert visible(cut) == visible(whole)
        assert totals == {name: counted(whole, name) for name in SUMMED}


@given(seed=seeds)
@law
def test_a_window_of_no_length_changes_nothing(seed: int) -> None:
    case = random_case(seed)
    engine = serve_case(case)
    before = visible(engine)
    engine.serve(case.windows[-1][1], engine.now_ps)
    assert visible(engine) == before
