"""`llmserve fleet show`: an episode of any policy as a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from llmserve_env.cli.main import main
from tests.fleet.small import fields_of

POLICY = """
from llmserve_env.fleet.decision import FleetDecision

def decide(observation):
    return FleetDecision((2,), (0,))
"""


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    data = fields_of("elastic_plain") | {"id": "mine", "steps": 30}
    data["traffic"]["mean_rps"] = 4.0
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    (tmp_path / "policy.py").write_text(POLICY, encoding="utf-8")
    return path


def test_ones_own_policy_on_ones_own_series_is_shown_on_a_page(
    task_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    series, page = task_file.parent / "rates.json", task_file.parent / "page.html"
    rates: list[float | None] = [5.0] * 600
    rates[10] = None
    series.write_text(json.dumps({"window_s": 600, "rate_rps": rates}), encoding="utf-8")
    policy = f"{task_file.parent / 'policy.py'}:decide"
    assert main(["fleet", "show", str(task_file), "--agent", policy, "--series", str(series), "--out", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "policy.py:decide" in printed
    assert "dollars per day" in printed
    assert "1 of 600 windows (0.2%) have no data and are filled" in printed
    text = page.read_text(encoding="utf-8")
    assert "Replicas by state" in text
    assert "1 of 600 windows" in text


def test_an_episode_that_the_series_does_not_have_is_refused(
    task_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = f"{task_file.parent / 'policy.py'}:decide"
    assert main(["fleet", "show", str(task_file), "--agent", policy, "--episode", "9999", "--out", "-"]) != 0
    assert "--episode must be from 0 to" in capsys.readouterr().err
