"""Rate series: the shipped ones, gaps that are filled and said, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmserve_env.errors import TraceFormatError
from llmserve_env.fleet.series import load_series, parse_series, shipped_series

DAY = 144
"""Windows of ten minutes in a day."""


def described(**changes: Any) -> dict[str, Any]:
    return {"window_s": 600, "rate_rps": [10.0] * (4 * DAY)} | changes


@pytest.mark.parametrize("name", shipped_series())
def test_a_shipped_series_covers_two_weeks_and_names_its_licence(name: str) -> None:
    series = load_series(name)
    assert series.length_s == 14 * 86_400.0
    assert (series.rate_rps > 0).all()
    assert len(series.starts("train", 21_600.0)) == len(series.starts("test", 21_600.0)) == 28
    assert min(series.starts("test", 21_600.0)) == 7 * 86_400.0
    data = json.loads((Path(load_series.__globals__["DATA"]) / f"{name}.json").read_text(encoding="utf-8"))
    assert "Apache-2.0" in data["licence"]
    assert "ServeGen" in data["source"]


def test_gaps_are_filled_with_straight_lines_and_said() -> None:
    rates: list[float | None] = [10.0] * (4 * DAY)
    rates[5:8] = [None, None, None]
    rates[8] = 30.0
    rates[20] = 0.0
    series = parse_series(described(rate_rps=rates, missing=[20]), "mine", "mine.json")
    assert series.filled == (5, 6, 7, 20)
    np.testing.assert_allclose(series.rate_rps[4:9], [10.0, 15.0, 20.0, 25.0, 30.0])
    assert series.rate_rps[20] == 10.0
    assert "4 of 576 windows (0.7%) have no data" in series.notes[0]
    assert load_series("servegen_m_large").notes == ()
    assert "37 of 2016 windows" in load_series("servegen_m_small").notes[0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "needs window_s and rate_rps"),
        ({"window_s": 600}, "needs window_s and rate_rps"),
        (described(window_s=0), "window_s must be a number from 1"),
        (described(rate_rps="fast"), "rate_rps must be a list of numbers; got str"),
        (described(rate_rps=[10.0] * (4 * DAY - 1) + [-3.0]), r"rate_rps\[575\] must be from 0 to .*; got -3"),
        (described(rate_rps=[10.0] * (4 * DAY - 1) + ["x"]), r"rate_rps\[575\] must be a number"),
        (described(rate_rps=[10.0] * DAY), "1.00 days; at least 2"),
        (described(rate_rps=[0.0] * (4 * DAY)), "nothing to serve"),
        (described(rate_rps=[None] * DAY * 2 + [1.0] * DAY * 2), "288 of 576 windows have no data; at most 25%"),
        (described(missing=[9_999]), "missing names window 9999"),
        (described(idc=[1.0]), "idc has 1 windows and rate_rps 576"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused_by_name(data: Any, message: str) -> None:
    with pytest.raises(TraceFormatError, match=message):
        parse_series(data, "mine", "mine.json")


def test_a_file_that_is_missing_or_not_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="choose one of servegen_m_large, servegen_m_small"):
        load_series("servegen_m_huge")
    path = tmp_path / "bad.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(TraceFormatError, match="cannot be read as JSON"):
        load_series(path)
