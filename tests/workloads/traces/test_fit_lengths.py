from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from llmserve_env.workloads.distributions import OutputDistribution, TokenDistribution, output_tokens, tokens
from llmserve_env.workloads.traces.fit_lengths import RELATIVE_TOLERANCE, duration_law, output_law, simplify, token_law


def drawn(law: dict[str, Any], u: np.ndarray) -> np.ndarray:
    return tokens(TypeAdapter(TokenDistribution).validate_python(law), u)


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=300))
def test_a_table_gives_back_the_counts_it_was_made_of(values: list[int]) -> None:
    counts = np.sort(values)
    found = drawn(token_law(counts), (np.arange(len(counts)) + 0.5) / len(counts))
    assert np.all(np.abs(found - counts) <= np.maximum(0.5, RELATIVE_TOLERANCE * counts + 0.5))


@given(st.lists(st.integers(1, 32), min_size=1, max_size=300))
def test_small_counts_are_exact(values: list[int]) -> None:
    counts = np.sort(values)
    assert drawn(token_law(counts), (np.arange(len(counts)) + 0.5) / len(counts)).tolist() == counts.tolist()


def test_a_table_is_much_shorter_than_its_data() -> None:
    values = np.ceil(np.random.default_rng(0).lognormal(6.0, 1.0, 20_000)).astype(int)
    assert len(token_law(values)["levels"]) < 200


def test_a_straight_line_needs_its_ends_only() -> None:
    x = np.linspace(0.0, 1.0, 50)
    assert simplify(x, 3.0 * x, np.full(50, 1e-9)).tolist() == [0, 49]


def test_outputs_follow_the_band_of_their_prompt() -> None:
    rng = np.random.default_rng(0)
    prompt = rng.integers(1, 1000, 4000)
    output = np.where(prompt <= 500, rng.integers(10, 20, 4000), rng.integers(300, 400, 4000))
    law = TypeAdapter(OutputDistribution).validate_python(output_law(prompt, output))
    found = output_tokens(law, rng.random(4000), prompt)
    assert found[prompt <= 400].max() < 20
    assert found[prompt > 600].min() >= 300


def test_outputs_that_do_not_depend_on_prompts_have_one_table() -> None:
    rng = np.random.default_rng(0)
    assert output_law(rng.integers(1, 1000, 4000), rng.integers(1, 50, 4000))["kind"] == "quantiles"
    assert output_law(np.arange(1, 61), np.arange(1, 61))["kind"] == "quantiles"


@pytest.mark.parametrize(("values", "kind"), [([2.0, 2.0], "constant"), ([1.0, 5.0, 9.0], "quantiles")])
def test_durations_are_constant_or_a_table(values: list[float], kind: str) -> None:
    assert duration_law(np.array(values))["kind"] == kind
