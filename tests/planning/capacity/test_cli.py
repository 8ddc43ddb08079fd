"""`llmserve task`, `llmserve capacity` and `llmserve report` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.cli.main import main
from llmserve_env.tasks.catalog import known_ids
from tests.own_tasks import own_task, write_task


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    return write_task(tmp_path, own_task(steps=6))


def test_every_task_is_listed_with_its_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == known_ids()
    assert {line.split()[0] for line in lines} == {"core", "extended"}


def test_capacity_prints_an_answer_per_tier(task_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", str(task_file), "--episodes", "1", "--max-replicas", "3", "--target", "0.9"]) == 0
    said = capsys.readouterr().out
    assert all(tier in said for tier in ("FP16", "INT8", "INT4"))
    assert "cheapest: 1 × a100-40gb.llama-3-8b" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["capacity", "TASK", "--target", "95"], "--target is a share of requests above 0 and up to 1"),
        (["capacity", "TASK", "--max-replicas", "0"], "--max-replicas must be at least 1; got 0"),
        (["capacity", "TASK", "--profile", "abacus"], "no profile 'abacus'; choose one of"),
        (["capacity", "no_such_task"], "there is no task 'no_such_task'; known: static_workload"),
        (["report", "TASK", "-o", "nowhere/report.html"], "the folder nowhere does not exist"),
        (["report", "TASK", "--trials", "0"], "--trials must be at least 1; got 0"),
        (["task", "check", "none.yaml"], "none.yaml: no such task file"),
        (
            ["evaluate", "--task", "TASK", "--agent", "default_knobs", "--episodes", "1"],
            "llmserve task freeze my_task.yaml",
        ),
        (["tune", "TASK", "--task", "1"], "not both"),
        (["tune", "--task", "1", "--method", "tpe", "--ray-address", "local"], "use --method halving on a Ray cluster"),
    ],
)
def test_mistakes_say_what_is_allowed(
    task_file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(task_file) if word == "TASK" else word for word in arguments]) == 2
    assert message in capsys.readouterr().err
