"""The checks before a submission: which of them run, and what their outcome means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tools import pre_submission_check as checks
from tools.pre_submission_check import Result


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands are noted instead of run."""
    noted: list[str] = []

    def note(name: str, command: list[object], variables: dict[str, str] | None = None) -> Result:
        noted.append(f"{name}: {' '.join(map(str, command))}")
        return Result(name, "ok")

    @contextmanager
    def server() -> Iterator[str]:
        yield "http://127.0.0.1:1"

    monkeypatch.setattr(checks, "command_check", note)
    monkeypatch.setattr(checks, "local_server", server)
    return noted


def names(results: list[Result]) -> dict[str, str]:
    return {result.name: result.status for result in results}


def test_a_plain_run_tests_validates_and_asks_a_server(
    commands: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checks, "has_docker_engine", lambda: False)
    assert checks.main([]) == 0
    printed = capsys.readouterr().out
    assert "ok   tests" in printed
    assert "skip docker: no Docker engine" in printed
    assert [line.split(":")[0] for line in commands] == ["tests", "openenv validate", "server", "server"]
    assert commands[-1].endswith("validate --url http://127.0.0.1:1 --timeout 30")


def test_options_leave_out_and_add(commands: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    asked = ["--skip-tests", "--skip-docker", "--space-url", "https://owner-name.hf.space/", "--run-openai-baseline"]
    options = ["--baseline-runtime", "http", "--model", "tiny"]
    found = names(checks.run_checks(checks.arguments([*asked, *options])))
    assert (found["tests"], found["docker"], found["openai baseline"]) == ("skip", "skip", "ok")
    assert (found["space: endpoints"], found["space: openenv validate"]) == ("ok", "ok")
    assert "https://owner-name.hf.space --timeout" in commands[-2]
    assert commands[-1].endswith("--runtime http --model tiny --base-url http://127.0.0.1:1")


def test_with_an_engine_the_image_is_built_run_checked_and_stopped(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[list[str]] = []
    monkeypatch.setattr(checks, "has_docker_engine", lambda: True)
    monkeypatch.setattr(subprocess, "run", lambda command, **_options: stopped.append(command))
    assert set(names(checks.check_docker()).values()) == {"ok"}
    assert [line.split(":")[0] for line in commands] == ["docker build", "docker run", "docker", "docker"]
    assert stopped[0][:2] == ["docker", "stop"]


def test_an_image_that_does_not_build_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "has_docker_engine", lambda: True)
    monkeypatch.setattr(checks, "command_check", lambda name, _command: Result(name, "FAIL", "exit status 1"))
    assert names(checks.check_docker()) == {"docker build": "FAIL"}


def test_a_failure_is_named_and_decides_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    results = [Result("tests", "ok"), checks.check_openai("in-process", None)]
    monkeypatch.setattr(checks, "run_checks", lambda _asked: results)
    assert checks.main([]) == 1
    assert "FAIL openai baseline: OPENAI_API_KEY is not set" in capsys.readouterr().out


@pytest.mark.parametrize(("program", "status"), [("pass", "ok"), ("raise SystemExit(3)", "FAIL")])
def test_a_command_passes_by_its_exit_status(program: str, status: str) -> None:
    result = checks.command_check("x", [sys.executable, "-c", program])
    assert (result.status, result.note) == (status, "" if status == "ok" else "exit status 3")
