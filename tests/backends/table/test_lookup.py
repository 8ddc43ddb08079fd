"""Figures at grid points, between them, and with noise."""

from __future__ import annotations

from dataclasses import astuple
from itertools import product

import numpy as np
import pytest

from llmserve_env.backends.table.grid import MEASURES, Grid
from llmserve_env.backends.table.lookup import JITTER, LookupTable, jitter_stream, nearest
from llmserve_env.engine.knobs import ServingKnobs
from llmserve_env.errors import InvalidActionError

GRID = Grid((1, 8, 64), (0.1, 0.5, 1.0), (0, 1, 2, 4, 8), (0, 1, 2), (64, 512, 8192))


@pytest.fixture
def numbered() -> LookupTable:
    """Figures that name their own grid point: no two are alike, none lies on a line."""
    measures = np.random.default_rng(3).uniform(10.0, 50.0, (*GRID.shape, len(MEASURES)))
    return LookupTable(GRID, measures, 40.0, {})


def test_grid_points_are_exact(numbered: LookupTable) -> None:
    for at in product(*(range(n) for n in GRID.shape)):
        batch, kv, depth, tier, bucket = (axis[i] for axis, i in zip(astuple(GRID), at, strict=True))
        found = numbered.lookup(ServingKnobs(batch, kv, depth, tier), bucket)
        assert list(astuple(found)[: len(MEASURES)]) == numbered.measures[at].tolist()
        assert found.is_out_of_memory == (found.gpu_mem_gb > 40.0)


def test_batch_and_budget_are_linear_between(numbered: LookupTable) -> None:
    corners = numbered.measures[1:, 1:, 0, 0, 0, 3]
    along_batch = 0.75 * corners[0] + 0.25 * corners[1]
    expected = 0.4 * along_batch[0] + 0.6 * along_batch[1]
    assert numbered.lookup(ServingKnobs(22, 0.8), 64).tps == pytest.approx(expected)


@pytest.mark.parametrize(("depth", "taken"), [(0, 0), (3, 2), (5, 4), (6, 4), (7, 8)])
def test_depth_is_the_nearest_the_lower_of_two(numbered: LookupTable, depth: int, taken: int) -> None:
    assert numbered.lookup(ServingKnobs(8, 0.5, depth), 64) == numbered.lookup(ServingKnobs(8, 0.5, taken), 64)


def test_tier_is_the_nearest() -> None:
    assert [nearest((0, 2), tier) for tier in (0, 1, 2)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("prompt_tokens", "bucket"), [(1, 0), (64, 0), (64.5, 1), (65, 1), (512, 1), (513, 2), (8192, 2), (20_000, 2)]
)
def test_a_prompt_belongs_to_the_first_bucket_that_holds_it(
    numbered: LookupTable, prompt_tokens: float, bucket: int
) -> None:
    assert numbered.bucket(prompt_tokens) == bucket


@pytest.mark.parametrize("knobs", [ServingKnobs(65, 1.0), ServingKnobs(8, 0.05), ServingKnobs(0, 0.5)])
def test_nothing_is_extrapolated(numbered: LookupTable, knobs: ServingKnobs) -> None:
    with pytest.raises(InvalidActionError, match="must be from"):
        numbered.lookup(knobs, 64)
    with pytest.raises(InvalidActionError, match="prompt_tokens must be above 0"):
        numbered.lookup(ServingKnobs(8, 0.5), 0)


def test_a_mix_of_prompts_spends_the_time_of_each(numbered: LookupTable) -> None:
    short, long = (numbered.over_batch(0.5, 0, 0, prompt).at(8) for prompt in (64, 8192))
    mixed = numbered.over_mix(0.5, 0, 0, np.array([10, 64, 64, 5000])).at(8)
    assert 1 / mixed.tps == pytest.approx(0.75 / short.tps + 0.25 / long.tps)
    assert mixed.tpot_ms == pytest.approx(0.75 * short.tpot_ms + 0.25 * long.tpot_ms)
    assert mixed.gpu_mem_gb == max(short.gpu_mem_gb, long.gpu_mem_gb)
    assert mixed.ttft_p50_ms == short.ttft_p50_ms
    assert mixed.ttft_p99_ms == max(long.ttft_p99_ms, mixed.ttft_p50_ms)
    alone = numbered.over_mix(0.5, 0, 0, np.array([10, 64])).at(8)
    assert (alone.tps, alone.tpot_ms, alone.gpu_mem_gb) == pytest.approx((short.tps, short.tpot_ms, short.gpu_mem_gb))


def test_noise_is_gaussian_of_five_percent_on_latencies_alone(numbered: LookupTable) -> None:
    knobs = ServingKnobs(8, 0.5)
    plain = numbered.lookup(knobs, 64)
    noisy = [numbered.lookup(knobs, 64, jitter_stream(seed, step)) for seed in range(20) for step in range(100)]
    for name in ("ttft_p50_ms", "ttft_p99_ms", "tpot_ms"):
        ratio = np.array([getattr(window, name) for window in noisy]) / getattr(plain, name)
        assert ratio.mean() == pytest.approx(1.0, abs=4 * JITTER / np.sqrt(len(noisy)))
        assert ratio.std() == pytest.approx(JITTER, rel=0.1)
        assert np.mean(np.abs(ratio - 1.0) < JITTER) == pytest.approx(0.683, abs=0.05)
    assert {(w.tps, w.gpu_mem_gb, w.cost_per_1k) for w in noisy} == {(plain.tps, plain.gpu_mem_gb, plain.cost_per_1k)}


def test_noise_depends_on_seed_and_step_alone(numbered: LookupTable) -> None:
    knobs = ServingKnobs(8, 0.5)
    first = numbered.lookup(knobs, 64, jitter_stream(7, 3))
    numbered.lookup(knobs, 64, jitter_stream(7, 4))
    assert numbered.lookup(knobs, 64, jitter_stream(7, 3)) == first
    assert numbered.lookup(knobs, 64, jitter_stream(7, 4)) != first
    assert numbered.lookup(knobs, 64, jitter_stream(8, 3)) != first


def test_more_batch_means_more_tokens_up_to_the_memory(table: LookupTable) -> None:
    short = [table.lookup(ServingKnobs(batch, 1.0), 128).tps for batch in (1, 16, 128)]
    assert short == sorted(short)
    starved = [table.lookup(ServingKnobs(batch, 0.1), 1024).tps for batch in (16, 512)]
    assert starved[1] < 1.1 * starved[0]
    assert starved[1] < table.lookup(ServingKnobs(512, 1.0), 1024).tps


def test_a_full_batch_on_a_full_pool_does_not_fit_in_fp16(table: LookupTable) -> None:
    assert table.lookup(ServingKnobs(512, 1.0), 128).is_out_of_memory
    assert not table.lookup(ServingKnobs(512, 0.5), 128).is_out_of_memory
    assert not table.lookup(ServingKnobs(16, 1.0), 128).is_out_of_memory
