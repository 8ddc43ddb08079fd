from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.evaluation.statistics import gap_closed, summarise


def test_the_interval_holds_the_mean_and_does_not_change_between_calls() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.1, 20).tolist()
    found = summarise(values)
    assert found == summarise(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.ci95[0] < found.mean < found.ci95[1]


def test_the_interval_has_about_the_width_of_the_textbook() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, 400)
    low, high = summarise(values.tolist()).ci95
    assert high - low == pytest.approx(2 * 1.96 * values.std() / np.sqrt(400), rel=0.1)


def test_the_interquartile_mean_ignores_outliers() -> None:
    assert summarise([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 900.0]).iqm == 1.0


def test_equal_values_and_single_ones_have_an_interval_of_no_width() -> None:
    assert summarise([0.25] * 5).ci95 == (0.25, 0.25)
    assert summarise([0.25]).ci95 == (0.25, 0.25)


def test_nothing_cannot_be_summarised() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summarise([])


def test_the_share_of_a_gap() -> None:
    assert gap_closed(0.6, 0.4, 0.8) == pytest.approx(0.5)
    assert gap_closed(0.6, 0.8, 0.8) is None
