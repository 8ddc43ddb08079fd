"""`llmserve task`, `llmserve capacity` and `llmserve report` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.agents.constant import tuned_knobs
from llmserve_env.cli.main import main
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.store import answer_for
from llmserve_env.tasks.catalog import SUITES, known_ids, load_task
from tests.own_tasks import own_task, write_task


@pytest.fixture
def task_file(tmp_path: Path) -> Path:
    return write_task(tmp_path, own_task(steps=6))


def test_every_task_is_listed_with_its_suite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["task", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == known_ids()
    assert {line.split()[0] for line in lines} == set(SUITES)


def test_capacity_prints_an_answer_per_tier(task_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", str(task_file), "--episodes", "2", "--max-replicas", "3", "--target", "0.9"]) == 0
    said = capsys.readouterr().out
    assert all(tier in said for tier in ("FP16", "INT8", "INT4"))
    assert "recommended  1 × a100-40gb at FP16, 1.29 USD/h" in said
    assert "price        a100-40gb 1.29 USD per hour: on-demand list prices" in said


def test_a_promise_no_fleet_keeps_ends_with_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = own_task(steps=6)
    fields["workload"]["classes"][0]["ttft_slo_ms"] = 2
    assert main(["capacity", str(write_task(tmp_path, fields)), "--episodes", "2"]) == 1
    assert "IMPOSSIBLE   chat: TTFT within 2 ms" in capsys.readouterr().out


def test_tuning_a_task_of_your_own_gives_the_tuned_agent_what_the_answer_says(
    task_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(task_file), "--episodes", "2", "--max-replicas", "3"]) == 0
    assert "own fleet    keeps every promise: 1 × a100-40gb at FP16" in capsys.readouterr().out
    task = load_task(task_file)
    stored = answer_for(task, Protocol(num_fresh_seeds=2, max_replicas=3))
    assert tuned_knobs(task).tolist() == task.knobs_from_mapping(stored.own.knobs).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["capacity", "TASK", "--target", "95"], "--target is a share above 0 and up to 1"),
        (["capacity", "TASK", "--max-replicas", "0"], "--max-replicas must be at least 1; got 0"),
        (["capacity", "TASK", "--profile", "abacus"], "no profile 'abacus'; choose one of"),
        (["capacity", "no_such_task"], "there is no task 'no_such_task'; known: static_workload"),
        (["report", "TASK", "-o", "nowhere/report.html"], "the folder nowhere does not exist"),
        (["report", "TASK", "--episodes", "1"], "--episodes must be at least 2; got 1"),
        (["task", "check", "TASK", "--confidence", "1"], "--confidence is a share above 0 and up to 1"),
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
