"""The shipped policies: trained from a clean commit on the tasks as they are, and better than rules and constants."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import llmserve_env
from llmserve_env.agents.policy import (
    GENERALIST,
    check_policy,
    generalist_folder_for,
    load_policy,
    policy_folder,
    weights_folder,
)
from llmserve_env.agents.registry import make_agent
from llmserve_env.evaluation.evaluate import result_of
from llmserve_env.evaluation.play import play
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.catalog import BENCHMARK, EXTENDED, load_task, load_version

FOLDERS = [*BENCHMARK, GENERALIST]
PACKAGE = Path(llmserve_env.__file__).parent
PRINT_FOLDERS = """
from llmserve_env.agents.policy import policy_folder, weights_folder
print(weights_folder(), policy_folder("static_workload"), policy_folder("bursty_workload"), policy_folder("mine"))
"""


def card_of(name: str) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((policy_folder(name) / "ppo.json").read_text(encoding="utf-8"))
    return card


@pytest.mark.parametrize("name", FOLDERS)
def test_a_policy_says_where_it_comes_from(name: str) -> None:
    card = card_of(name)
    assert card["command"].startswith("python train.py --task ")
    assert len(card["commit"]) == 12
    assert (policy_folder(name) / "curve.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", FOLDERS)
def test_a_policy_fits_its_tasks(name: str) -> None:
    folder = policy_folder(name)
    policy = load_policy(folder)
    for task in card_of(name)["tasks"]:
        check_policy(policy, load_task(task), folder)


def test_an_older_generalist_plays_only_the_versions_that_it_learned() -> None:
    """The trace-driven tasks have a version 1 too, of which the core tasks' first generalist has not heard."""
    newest, former = policy_folder(GENERALIST), policy_folder(f"{GENERALIST}-v1")
    assert {generalist_folder_for(load_task(name)) for name in (*BENCHMARK, *EXTENDED)} == {newest}
    assert {generalist_folder_for(load_version(name, 1)) for name in BENCHMARK} == {former}


def test_training_in_a_checkout_updates_the_shipped_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMSERVE_WEIGHTS", raising=False)
    assert weights_folder() == PACKAGE / "weights"
    assert policy_folder("mine") == PACKAGE / "weights" / "mine"


def test_a_named_folder_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMSERVE_WEIGHTS", str(tmp_path))
    assert weights_folder() == tmp_path
    assert policy_folder("static_workload") == tmp_path / "static_workload"


def test_an_installed_package_trains_into_the_current_folder(tmp_path: Path) -> None:
    """Policies trained there are found first, and the shipped ones otherwise."""
    site, work = tmp_path / "site", tmp_path / "work"
    shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    (work / "weights" / "static_workload").mkdir(parents=True)
    variables = {name: value for name, value in os.environ.items() if name != "LLMSERVE_WEIGHTS"}
    done = subprocess.run(
        [sys.executable, "-c", PRINT_FOLDERS],
        cwd=work,
        env={**variables, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=True,
    )
    shipped = site / PACKAGE.name / "weights" / "bursty_workload"
    assert done.stdout.split() == ["weights", "weights/static_workload", str(shipped), "weights/mine"]


@pytest.mark.parametrize("name", BENCHMARK)
def test_returns_rise_while_training(name: str) -> None:
    returns = card_of(name)["curve"]["return"]
    tenth = max(len(returns) // 10, 1)
    assert sum(returns[-tenth:]) > sum(returns[:tenth])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bursty_workload", "adversarial_multitenant"])
def test_a_policy_beats_the_rules_and_finds_the_best_constant(name: str) -> None:
    """At these tasks' prices that is what there is to find; see docs/tasks.md."""
    task, seeds = load_task(name), list(SEED_RANGES["evaluation"][:4])
    ppo, tuned, heuristic = (
        sum(result_of(agent, episode).score for episode in play(make_agent(agent), task, seeds))
        for agent in ("ppo", "tuned", "heuristic")
    )
    assert ppo > heuristic
    assert ppo >= 0.97 * tuned
