"""The parts of the profiler that need no GPU: the model sizes and the list of iterations."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from llmserve_env.profiles import architectures as library
from tests.architecture import imports
from tools.profiler import architectures, grid


def test_the_profiler_times_the_models_of_the_library() -> None:
    assert list(architectures.ARCHITECTURES) == list(library.ARCHITECTURES)
    for name, ours in library.ARCHITECTURES.items():
        assert asdict(ours) == asdict(architectures.ARCHITECTURES[name])
        assert ours.linears == architectures.ARCHITECTURES[name].linears
    assert {k: v.name for k, v in library.DRAFT_OF.items()} == {k: v.name for k, v in architectures.DRAFT_OF.items()}


def test_the_profiler_needs_nothing_of_the_package() -> None:
    profiler = Path(architectures.__file__).parent
    imported = {name.split(".")[0] for path in profiler.glob("*.py") for _, name in imports(profiler.parents[1], path)}
    assert imported - sys.stdlib_module_names == {"torch", "triton", "tools"}


@pytest.mark.parametrize("dense", [True, False])
def test_the_grid_times_nothing_twice_and_fits_the_cache(dense: bool) -> None:
    points = grid.training_points(dense)
    assert len(points) == len(set(points))
    for point in points:
        used = point.sequences * point.context + sum(n + past for n, past in point.prefill)
        assert used <= grid.MAX_CONTEXT_TOKENS + 36_864


def test_the_grid_covers_what_the_cost_model_distinguishes() -> None:
    points = grid.training_points(dense=True)
    assert {p.query_tokens for p in points} == {1, 2, 3, 5, 9}
    assert any(p.sequences and p.prefill for p in points)
    assert any(past for p in points for _, past in p.prefill)
    assert max(p.tokens for p in points) >= 8192


def test_random_iterations_repeat_with_their_seed() -> None:
    assert grid.random_points(30, 7, held_out=True) == grid.random_points(30, 7, held_out=True)
    assert grid.random_points(30, 7, held_out=True) != grid.random_points(30, 8, held_out=True)
    assert all(p.held_out for p in grid.random_points(5, 1, held_out=True))


def test_llama_3_8b_weighs_what_it_weighs() -> None:
    model = library.ARCHITECTURES["llama-3-8b"]
    assert model.linear_parameters + 2 * model.embedding_parameters == pytest.approx(8.03e9, rel=1e-3)
    assert model.kv_bytes_per_token == 131_072
    assert library.ARCHITECTURES["llama-3.2-1b"].weight_bytes("FP16") == pytest.approx(2.47e9, rel=1e-2)
