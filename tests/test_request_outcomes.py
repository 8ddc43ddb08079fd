"""Outcomes of requests: complete, equal to the windows' own counts, and percentiles that say what shares say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmserve_env.agents.registry import make_agent
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.env.episode import Episode, PlayedEpisode
from llmserve_env.evaluation.play import play
from llmserve_env.request_outcomes import (
    Ending,
    RequestOutcomes,
    latency_text,
    percentile_ms,
    request_figures,
)
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.variants import with_changes


def outcomes(ttft_ms: list[float], *, slo_ms: float = math.inf, age_ms: float = 1e9) -> RequestOutcomes:
    """Requests of one class with these waits; infinite ones were abandoned, NaN ones still wait."""
    ttft = np.array(ttft_ms)
    n, is_lost, is_open = len(ttft), np.isinf(ttft), np.isnan(ttft)
    whole = np.full(n, 10)
    return RequestOutcomes(
        arrival_s=np.arange(n, dtype=np.float64),
        class_index=np.zeros(n, np.int8),
        prompt_tokens=whole,
        output_tokens=whole,
        tier=np.zeros(n, np.int8),
        ending=np.where(is_lost, Ending.ABANDONED, np.where(is_open, Ending.UNDER_WAY, Ending.FINISHED)),
        age_ms=np.full(n, age_ms),
        ttft_ms=ttft,
        tpot_ms=np.where(is_lost | is_open, np.nan, 20.0),
        e2e_ms=ttft + 180.0,
        ttft_slo_ms=np.full(n, slo_ms),
        tpot_slo_ms=np.full(n, 30.0),
        e2e_slo_ms=np.full(n, math.inf),
    )


@pytest.fixture(scope="module", params=["static_workload", "bursty_workload", "adversarial_multitenant"])
def played(request: pytest.FixtureRequest) -> PlayedEpisode:
    return play(make_agent("heuristic"), load_task(request.param), [5])[0]


def test_every_request_that_arrived_has_one_row(played: PlayedEpisode) -> None:
    totals, figures = played.totals(), request_figures(played.requests)
    assert figures.num_requests == totals["arrived"]
    assert (figures.num_finished, figures.num_rejected) == (totals["finished"], totals["rejected"])
    assert figures.num_abandoned == totals["abandoned"]
    assert figures.num_under_way == figures.num_requests - figures.num_finished - figures.num_lost


def test_promises_kept_are_those_that_the_windows_counted(played: PlayedEpisode) -> None:
    window, met = played.trajectory.window, played.requests.is_met("ttft")
    for k, name in enumerate(played.task.workload.class_names):
        mine = met[played.requests.class_index == k]
        assert np.count_nonzero(~np.isnan(mine)) == window["judged_by_class"][:, k].sum(), name
        tiers = slice(k * len(TIER_NAMES), (k + 1) * len(TIER_NAMES))
        assert np.nansum(mine) == window["met_by_class_tier"][:, tiers].sum(), name


def test_mean_time_per_output_token_is_that_of_the_windows(played: PlayedEpisode) -> None:
    window, tpot = played.trajectory.window, request_figures(played.requests).tpot
    assert tpot.num_requests == window["tpot_requests"].sum()
    assert tpot.mean_ms == pytest.approx(window["tpot_sum_ps"].sum() / window["tpot_requests"].sum() / 1e9)


def test_latencies_add_up(played: PlayedEpisode) -> None:
    found = played.requests
    rows = found.ending == Ending.FINISHED
    streamed = np.where(found.output_tokens[rows] > 1, found.tpot_ms[rows] * (found.output_tokens[rows] - 1), 0.0)
    np.testing.assert_allclose(found.ttft_ms[rows] + streamed, found.e2e_ms[rows])


def test_an_episode_and_its_batch_have_the_same_outcomes() -> None:
    task = load_task("static_workload")
    alone = Episode(task)
    alone.reset(3)
    for _ in range(task.steps):
        alone.step(task.default_knobs)
    side_by_side = play(make_agent("default_knobs"), task, [2, 3])[1]
    assert request_figures(alone.played().requests) == request_figures(side_by_side.requests)


def test_promises_of_tpot_and_end_to_end_come_from_the_classes() -> None:
    task = load_task("static_workload")
    [service] = task.workload.classes
    changed = {**service.model_dump(), "tpot_slo_ms": 12.5, "e2e_slo_ms": 4000.0}
    task = with_changes(task, steps=60, workload={"classes": [changed]})
    found = play(make_agent("default_knobs"), task, [1])[0].requests
    assert set(found.tpot_slo_ms) == {12.5}
    figures = request_figures(found)
    assert figures.tpot.within_slo == np.mean(found.tpot_ms[~np.isnan(found.tpot_ms)] <= 12.5)
    assert 0.0 < (figures.e2e.within_slo or 0.0) < 1.0


@given(
    st.lists(st.one_of(st.floats(0, 1e6), st.just(math.inf)), min_size=1, max_size=60),
    st.integers(1, 100),
    st.floats(0, 1e6),
)
def test_a_percentile_is_within_a_limit_exactly_if_that_share_of_requests_is(
    values: list[float], percent: int, limit_ms: float
) -> None:
    found = percentile_ms(np.sort(np.array(values)), percent)
    share = sum(value <= limit_ms for value in values) * 100 >= percent * len(values)
    assert (found <= limit_ms) == share


def test_a_lost_request_is_later_than_any_other() -> None:
    figures = request_figures(outcomes([100.0] * 95 + [math.inf] * 5, slo_ms=200.0))
    assert (figures.ttft[90], figures.ttft[99]) == (100.0, math.inf)
    assert figures.ttft.within_slo == 0.95
    assert figures.num_lost == 5
    assert figures.tpot[99] == 20.0, "streams have a speed whether or not others were lost"


def test_a_request_that_still_waits_counts_once_it_is_late() -> None:
    waiting = [100.0, math.nan]
    assert request_figures(outcomes(waiting, slo_ms=500.0, age_ms=400.0)).ttft.within_slo == 1.0
    late = request_figures(outcomes(waiting, slo_ms=500.0, age_ms=600.0)).ttft
    assert (late.within_slo, late[99]) == (0.5, 600.0)


def test_what_cannot_be_said_in_numbers_is_null_and_a_word() -> None:
    figures = request_figures(outcomes([math.inf]))
    assert figures.as_dict()["ttft_p50_ms"] is None
    assert figures.as_dict()["ttft_within_slo"] is None, "nothing was promised"
    assert latency_text(figures.ttft[50]) == "lost"
    assert latency_text(request_figures(outcomes([])).ttft[50]) == "–"
