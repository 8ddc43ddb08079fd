from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from llmserve_env.workloads.distributions import (
    Conditional,
    DurationDistribution,
    TokenDistribution,
    output_tokens,
    seconds,
    tokens,
)

U = (np.arange(200_000) + 0.5) / 200_000
_TOKENS: TypeAdapter[Any] = TypeAdapter(TokenDistribution)
_DURATIONS: TypeAdapter[Any] = TypeAdapter(DurationDistribution)


def token_law(**fields: Any) -> Any:
    return _TOKENS.validate_python(fields)


def test_uniform_tokens_include_both_ends_equally() -> None:
    counts = np.bincount(tokens(token_law(kind="uniform", low=3, high=7), U))
    assert counts[:3].sum() == 0
    assert counts[3:].tolist() == [40_000] * 5


def test_clamped_lognormal_piles_the_tails_on_its_bounds() -> None:
    values = tokens(token_law(kind="lognormal", mu=5.2, sigma=1.3, low=32, high=8192), U)
    assert (values.min(), values.max()) == (32, 8192)
    assert np.median(values) == pytest.approx(np.exp(5.2), rel=0.01)
    # P(X <= 32.5) of log-normal(5.2, 1.3) is 0.0925.
    assert np.mean(values == 32) == pytest.approx(0.0925, abs=0.001)
    assert np.mean(values == 8192) == pytest.approx(0.0017, abs=0.0003)


def test_resampled_lognormal_is_the_law_given_its_bounds() -> None:
    law = {"kind": "lognormal", "mu": 5.2, "sigma": 1.3, "low": 32, "high": 8192}
    values = tokens(token_law(**law, bounds="resample"), U)
    free = np.exp(np.random.default_rng(0).normal(5.2, 1.3, 400_000))
    kept = free[(free >= 32) & (free <= 8192)]
    assert values.min() >= 32
    assert np.mean(values == 32) < 0.01
    for level in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(values, level) == pytest.approx(np.quantile(kept, level), rel=0.02)


def test_quantile_table_gives_its_own_quantiles() -> None:
    law = token_law(kind="quantiles", levels=[0, 0.1, 0.5, 0.9, 0.99, 1], values=[1, 20, 129, 424, 601, 1500])
    values = tokens(law, U)
    for level, value in zip(law.levels, law.values, strict=True):
        assert np.quantile(values, level) == pytest.approx(value, abs=1)


def test_durations_are_continuous() -> None:
    law = _DURATIONS.validate_python({"kind": "uniform", "low": 0.5, "high": 1.0})
    values = seconds(law, U)
    assert values.min() == pytest.approx(0.5, abs=1e-4)
    assert values.max() == pytest.approx(1.0, abs=1e-4)
    assert values.mean() == pytest.approx(0.75, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "mean_s"),
    [
        ({"kind": "constant", "value": 2.5}, 2.5),
        ({"kind": "lognormal", "mu": 0.0, "sigma": 0.5, "low": 0.0, "high": 1000.0}, np.exp(0.125)),
        ({"kind": "quantiles", "levels": [0, 0.5, 1], "values": [0.0, 1.0, 4.0]}, 1.5),
    ],
)
def test_durations_have_the_mean_of_their_law(law: dict[str, Any], mean_s: float) -> None:
    assert seconds(_DURATIONS.validate_python(law), U).mean() == pytest.approx(mean_s, rel=1e-3)


def test_conditional_output_depends_on_the_band_of_the_prompt() -> None:
    law = Conditional.model_validate(
        {
            "kind": "conditional",
            "bands": [
                {"prompt_up_to": 100, "tokens": {"kind": "constant", "value": 7}},
                {"prompt_up_to": 500, "tokens": {"kind": "uniform", "low": 20, "high": 30}},
                {"tokens": {"kind": "constant", "value": 900}},
            ],
        }
    )
    prompts = np.array([1, 100, 101, 500, 501, 10_000])
    values = output_tokens(law, np.full(6, 0.5), prompts)
    assert values.tolist() == [7, 7, 25, 25, 900, 900]


@st.composite
def token_laws(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted(draw(st.tuples(st.integers(1, 5000), st.integers(1, 5000))))
    match draw(st.sampled_from(["constant", "uniform", "lognormal", "quantiles"])):
        case "constant":
            return {"kind": "constant", "value": low}
        case "uniform":
            return {"kind": "uniform", "low": low, "high": high}
        case "lognormal":
            mu, sigma = draw(st.floats(-50, 50)), draw(st.floats(0.01, 10))
            return {"kind": "lognormal", "mu": mu, "sigma": sigma, "low": low, "high": high}
        case _:
            values = sorted(draw(st.lists(st.integers(low, high), min_size=3, max_size=8)))
            return {"kind": "quantiles", "levels": np.linspace(0, 1, len(values)).tolist(), "values": values}


@given(token_laws(), st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20))
def test_tokens_rise_with_their_uniform_number_and_stay_in_bounds(fields: dict[str, Any], u: list[float]) -> None:
    law = token_law(**fields)
    values = tokens(law, np.sort(np.array(u)))
    assert np.all(np.diff(values) >= 0)
    assert law.smallest <= values[0] <= values[-1] <= law.largest
