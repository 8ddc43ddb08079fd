"""`llmserve evaluate --suite fleet`: one's own policy and series in, dollars out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmserve_env.cli import fleet_suite
from llmserve_env.cli.fleet_suite import gain_lines
from llmserve_env.cli.main import main
from llmserve_env.fleet.agents import AGENT_NAMES, make_agent
from llmserve_env.fleet.statistics import estimate, gain_over
from llmserve_env.fleet.task import DATA, TASKS
from tests.agents.own.examples import written

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "fleet.md"
POLICY = """
from llmserve_env.fleet.decision import FleetDecision

def decide(observation):
    return FleetDecision(serving=({replicas},), asleep=(0,))

def wrong(observation):
    return {{"serving": 8}}

def failing(observation):
    return 1 / 0

class Unready:
    def reset(self, task):
        raise RuntimeError("no GPUs today")

    def act(self, observation):
        return None
"""


def short(task: str, folder: Path) -> Path:
    """A task with episodes of four minutes, whose replicas boot in one."""
    data = yaml.safe_load((DATA / f"{task}.yaml").read_text(encoding="utf-8"))
    pools = [{**pool, "boot": {**pool["boot"], "median_s": 60.0}} for pool in data["pools"]]
    path = folder / "short.yaml"
    path.write_text(yaml.safe_dump({**data, "steps": 8, "pools": pools}), encoding="utf-8")
    return path


@pytest.fixture
def short_task(tmp_path: Path) -> Path:
    """`elastic_plain` with short episodes."""
    return short("elastic_plain", tmp_path)


@pytest.fixture
def series(tmp_path: Path) -> Path:
    """Two days of a steady service, one window of which has no data."""
    path = tmp_path / "service.json"
    rates: list[Any] = [100.0] * 288
    rates[10] = None
    path.write_text(json.dumps({"window_s": 600, "rate_rps": rates}), encoding="utf-8")
    return path


def policy(tmp_path: Path, replicas: int = 9) -> Path:
    path = tmp_path / f"policy_{replicas}.py"
    path.write_text(POLICY.format(replicas=replicas), encoding="utf-8")
    return path


def evaluated(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["evaluate", "--suite", "fleet", "--episodes", "2", "--jobs", "1", "--json", "-", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_policy_of_ones_own_earns_dollars_per_day(
    tmp_path: Path, short_task: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--task", str(short_task), "--series", str(series))
    found = evaluated(capsys, "--agent", f"{policy(tmp_path)}:decide", *options)
    figures = found["tasks"]["elastic_plain"]
    low, high = figures["dollars_per_day"]["ci95"]
    assert low <= figures["dollars_per_day"]["mean"] <= high
    assert 0.0 <= figures["attainment"] <= 1.0
    # Nine replicas of two GPUs around the clock.
    assert figures["gpu_hours"] == pytest.approx(9 * 2 * 24, rel=0.01)
    assert found == evaluated(capsys, "--agent", f"{policy(tmp_path)}:decide", *options)


@pytest.mark.parametrize(("task", "agent"), [("elastic_fleet", "decide"), *((task, "Follow") for task in TASKS)])
def test_the_policies_of_the_documentation_play(
    task: str, agent: str, tmp_path: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = written("policy.py", tmp_path, DOCUMENT)
    options = ("--task", str(short(task, tmp_path)), "--series", str(series), "--agent", f"{example}:{agent}")
    assert 0.5 < evaluated(capsys, *options)["tasks"][task]["attainment"] <= 1.0


def test_without_a_number_so_many_episodes_are_played_as_the_suite_has(
    tmp_path: Path, short_task: Path, series: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--task", str(short_task), "--series", str(series), "--agent", f"{policy(tmp_path)}:decide")
    two = evaluated(capsys, *options)
    monkeypatch.setattr(fleet_suite, "EPISODES", 2)
    assert main(["evaluate", "--suite", "fleet", "--jobs", "1", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == two


def test_filled_windows_are_said(
    tmp_path: Path, short_task: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task", str(short_task), "--series", str(series), "--agent", f"{policy(tmp_path)}:decide"]
    main(["evaluate", "--suite", "fleet", "--episodes", "1", "--jobs", "1", "--json", "-", *options])
    assert "1 of 288 windows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--agent", "hpq"], "there is no fleet agent 'hpq'; known: ppo, constant"),
        (["--agent", "nowhere.py:decide"], "there is no Python file 'nowhere.py'"),
        (["--task", "elastic"], "there is no fleet task 'elastic'"),
        (["--episodes", "0"], "--episodes must be at least 1; got 0"),
        (["--series", "missing.json"], "missing.json"),
        (["--csv"], "--suite fleet takes no --csv"),
        (["--seed-start", "0"], "--suite fleet takes no --seed-start"),
    ],
)
def test_what_is_wrong_is_named(
    options: list[str], message: str, tmp_path: Path, short_task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = ["--agent", f"{policy(tmp_path)}:decide", "--task", str(short_task), "--jobs", "1"]
    assert main(["evaluate", "--suite", "fleet", *usual, *options]) == 2
    assert message in capsys.readouterr().err


def test_a_decision_of_another_kind_is_named(
    tmp_path: Path, short_task: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--task", str(short_task), "--series", str(series), "--agent", f"{policy(tmp_path)}:wrong"]
    assert main(["evaluate", "--suite", "fleet", "--episodes", "1", "--jobs", "1", *options]) == 2
    assert "must return a FleetDecision" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("failing", ["failing raised ZeroDivisionError: division by zero", "in failing: return 1 / 0"]),
        ("Unready", ["Unready: reset() raised RuntimeError: no GPUs today", "in reset: raise RuntimeError"]),
    ],
)
def test_what_a_policy_raises_is_an_error_with_the_line_of_its_file(
    name: str, said: list[str], tmp_path: Path, short_task: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = f"{policy(tmp_path)}:{name}"
    where = ["--suite", "fleet", "--task", str(short_task), "--series", str(series), "--episodes", "1"]
    assert main(["evaluate", "--agent", agent, *where]) == 2
    printed = capsys.readouterr().err
    assert all(part in printed for part in said)
    assert "Traceback" not in printed


def test_a_task_by_name_needs_an_agent_that_is_ready_for_it(
    short_task: Path, series: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = short_task.read_text(encoding="utf-8").replace("version: 1", "version: 998")
    short_task.write_text(text, encoding="utf-8")
    options = ["--task", str(short_task), "--series", str(series), "--agent", "hpa", "--episodes", "1", "--jobs", "1"]
    assert main(["evaluate", "--suite", "fleet", *options]) == 2
    assert "hpa has no tuned settings for elastic_plain-v998" in capsys.readouterr().err


def test_a_series_without_the_fleet_suite_is_refused(series: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--series", str(series)]) == 2
    assert "--suite fleet" in capsys.readouterr().err


@pytest.mark.parametrize("name", AGENT_NAMES)
def test_every_agent_of_the_table_has_a_name(name: str) -> None:
    assert callable(make_agent(name).act)


def test_differences_are_paired_by_episode() -> None:
    others = [100.0, 300.0, 500.0, 700.0]
    better = [value * 1.1 for value in others]
    gain = gain_over(better, others)
    assert gain.mean == pytest.approx(0.1)
    assert gain.ci95 == pytest.approx((0.1, 0.1))
    assert estimate(better).ci95[0] < estimate(others).ci95[1]


def test_gains_are_dollars_and_a_share_only_where_the_other_surely_earns_something() -> None:
    usd = {"hpa": [90.0, 110.0, 100.0], "apa": [10.0, -20.0, 10.0], "informed": [-5.0, 5.0, 3.0], "ppo": [120.0] * 3}
    assert gain_lines(usd) == [
        "  ppo over hpa: +20.00 $/day [+10.00, +30.00], +20.0% [+9.1%, +33.3%]",
        "  ppo over informed: +119.00 $/day [+115.00, +125.00]",
        "  informed over hpa: -99.00 $/day [-105.00, -95.00], -99.0% [-105.6%, -95.5%]",
    ]
