"""The engine chooses among the settings of a rule that the surrogate likes."""

from __future__ import annotations

import numpy as np
import pytest

from llmserve_env.evaluation.runner import Threads
from llmserve_env.fleet import refining
from llmserve_env.fleet.refining import propose, refine
from llmserve_env.fleet.tuned import Settings, settings_so_far
from llmserve_env.fleet.tuning import searched_settings
from tests.fleet.worlds import plain_calibration, short_task, traffic_of

TASK = "elastic_plain"


def test_the_settings_that_earn_most_on_the_engine_win_on_all_episodes() -> None:
    task = short_task(TASK)
    traffics = [traffic_of(TASK, seed) for seed in (1, 2)]
    shares: list[Settings] = [{"share": share, "token_budget": 512.0} for share in (0.3, 1.2, 3.0)]
    found = refine(task, 512, "constant", shares, traffics, Threads(1).map)
    assert 0.3 < found.settings["share"] < 3.0
    assert found.usd_per_day > found.before_usd_per_day
    assert found.played == len(shares) + refining.NEIGHBOURS


def test_settings_stay_when_none_earns_more(monkeypatch: pytest.MonkeyPatch) -> None:
    task, kept = short_task(TASK), {"share": 1.2, "token_budget": 512.0}

    def play(task: object, name: str, candidates: list[Settings], *rest: object) -> np.ndarray:
        return -np.array([abs(each["share"] - kept["share"]) for each in candidates])

    monkeypatch.setattr(refining, "_play", play)
    found = refine(task, 512, "constant", [kept, {"share": 2.0, "token_budget": 512.0}], [], Threads(1).map)
    assert (found.settings, found.usd_per_day) == (kept, found.before_usd_per_day)


def test_proposals_begin_with_the_kept_settings_and_lie_in_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    task, calibration = short_task(TASK), plain_calibration()
    monkeypatch.setattr(refining, "Race", lambda *_: lambda candidates: np.arange(len(candidates), dtype=float))
    proposed = propose(task, None, calibration, "hpa")  # type: ignore[arg-type]
    allowed = searched_settings(task, calibration.token_budget, "hpa")
    assert len(proposed) == refining.PROPOSED
    assert proposed[0] == settings_so_far(task, "hpa") | {"token_budget": float(calibration.token_budget)}
    assert len({tuple(each.values()) for each in proposed}) == len(proposed)
    for each in proposed:
        assert all(allowed[name].low <= value <= allowed[name].high for name, value in each.items())
