"""Fleet tasks: the shipped ones load, and what makes no sense is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.errors import ConfigError, InvalidActionError, UnknownTaskError
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.series import load_series
from llmserve_env.fleet.task import TASKS, load_fleet_task, parse_fleet_task
from tests.fleet.small import fields_of


@pytest.mark.parametrize("name", TASKS)
def test_a_shipped_task_decides_every_thirty_seconds_for_six_hours(name: str) -> None:
    task = load_fleet_task(name)
    assert task.id == name
    assert (task.window_s, task.steps, task.length_s) == (30.0, 720, 21_600.0)
    task.check(task.default_decision())
    assert len(task.feature_names) == len(set(task.feature_names))


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one field, at a path such as `pools.0.boot.median_s`."""

    def apply(data: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place: Any = data
        for step in parents:
            place = place[int(step)] if step.isdigit() else place[step]
        place[last] = value

    return apply


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("prices.gpu_hour_usd", {"on_demand": -1.0, "spot": 1.0}, "on_demand.*greater than 0.*-1"),
        ("prices.prompt_usd_per_million", -0.1, r"prices\.prompt_usd_per_million.*-0\.1"),
        ("prices.gpu_hour_usd", {"on_demand": 2.0}, "lacks spot"),
        ("pools.0.boot.median_s", 30_000.0, "boot.median_s is 30000 and an episode lasts 21600 s"),
        ("pools.1.zone", "zone_x9", "unknown zone 'zone_x9'; known zones: zone_a1, "),
        ("pools.1.zone", None, "spot pool names its zone"),
        ("pools.0.partner", "nowhere", "partner 'nowhere' is not another pool"),
        ("pools.0.min_replicas", 99, "min_replicas must be at most max_replicas, 24; got 99"),
        ("pools.1.name", "on_demand", "every name once"),
        ("zones.0.availability", 1.5, r"zones\[0\]\.availability.*1\.5"),
        ("replica.tier", "FP4", "no tier 'FP4'"),
        ("replica.profile", "abacus", "no profile 'abacus'"),
        ("traffic.mean_rps", 0.0, r"traffic\.mean_rps.*greater than 0"),
        ("traffic.kinds.0.share", 0.5, "must add up to 1; they add up to 0.5"),
        ("prices.credits", [{"below": 0.9, "share": 0.1}, {"below": 0.99, "share": 0.2}], "highest attainment"),
        ("colour", "blue", "unknown field colour"),
    ],
)
def test_a_task_that_makes_no_sense_is_refused_by_name(path: str, value: Any, message: str) -> None:
    data = fields_of("spot_hedge")
    change(path, value)(data)
    with pytest.raises(ConfigError, match=message):
        parse_fleet_task(data)


def test_a_session_needs_gaps_between_its_turns() -> None:
    data = fields_of("elastic_fleet")
    change("traffic.kinds.0.gap_s", 0.0)(data)
    with pytest.raises(ConfigError, match="sessions of 13 turns need gap_s above 0"):
        parse_fleet_task(data)


def test_an_error_in_a_file_names_its_line(tmp_path: Path) -> None:
    text = (Path(load_fleet_task.__globals__["DATA"]) / "elastic_plain.yaml").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(text.replace("mean_rps: 40.0", "mean_rps: -40.0"), encoding="utf-8")
    line = 1 + path.read_text(encoding="utf-8").split("mean_rps")[0].count("\n")
    with pytest.raises(ConfigError, match=rf"mine\.yaml:{line}: traffic\.mean_rps"):
        load_fleet_task(path)


def test_an_unknown_task_lists_the_known_ones() -> None:
    with pytest.raises(UnknownTaskError, match="known: elastic_fleet, spot_hedge, pd_pools, elastic_plain"):
        load_fleet_task("elastic_flat")


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (FleetDecision((1, 2), (0,)), "serving needs 1 counts, for on_demand; got 2"),
        (FleetDecision((0,), (0,)), "serving of pool on_demand must be a whole number from 1 to 32; got 0"),
        (FleetDecision((33,), (0,)), "from 1 to 32; got 33"),
        (FleetDecision((2.5,), (0,)), "whole number"),  # type: ignore[arg-type]
        (FleetDecision((8,), (9,)), "asleep of pool on_demand must be a whole number from 0 to 8; got 9"),
        (FleetDecision((8,), (0,), 1.5), "batch_share must be from 0 to 1; got 1.5"),
        (FleetDecision((8,), (0,), float("nan")), "batch_share must be from 0 to 1; got nan"),
        (FleetDecision((8,), (0,), 0.0, 100), "token_budget must be a whole number from 256 to 8192; got 100"),
    ],
)
def test_a_decision_that_the_task_does_not_allow_is_refused(decision: FleetDecision, message: str) -> None:
    with pytest.raises(InvalidActionError, match=message):
        load_fleet_task("elastic_fleet").check(decision)


def test_a_task_without_batch_work_refuses_to_admit_some() -> None:
    with pytest.raises(InvalidActionError, match="this task has no batch work"):
        load_fleet_task("elastic_plain").check(FleetDecision((8,), (0,), 0.5))


def test_an_episode_must_fit_into_the_series() -> None:
    task, series = load_fleet_task("elastic_plain"), load_series("servegen_m_large")
    with pytest.raises(ConfigError, match="start_s must be from 0 to 1188000"):
        task.traffic(series, 1_200_000.0, 0)
