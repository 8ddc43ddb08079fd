"""Commands: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmserve_env.cli import evaluate, inference, train
from llmserve_env.cli.main import COMMANDS, main, parser
from tests.agents.test_llm import ACTION
from tests.openai_server import openai_server

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_help_lists_the_commands_and_loads_nothing_heavy() -> None:
    program = (
        "import sys; from llmserve_env.cli.main import parser; parser().format_help();"
        "print(*sorted({'numba', 'torch', 'openai', 'scipy', 'matplotlib', 'optuna'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []
    helped = parser().format_help()
    assert all(name in helped for name in COMMANDS if (ROOT / "llmserve_env" / "cli" / f"{name}.py").is_file())


@pytest.mark.parametrize("script", ["train.py", "evaluate.py", "inference.py"])
def test_root_scripts_are_short(script: str) -> None:
    assert len((ROOT / script).read_text(encoding="utf-8").splitlines()) <= 6


def test_evaluate_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--agent", "default_knobs", "random", "--task", "1", "--episodes", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("static_workload") == 4, "a row per agent: of scores, and of latencies"
    assert "95 % interval" in printed
    assert "Percentiles of requests" in printed


def test_evaluate_writes_json_csv_and_html(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("json", "csv", "html")}
    options = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    assert evaluate.main(["--agent", "default_knobs", "--task", "static_workload", "--episodes", "2", *options]) == 0
    data = json.loads(files["json"].read_text(encoding="utf-8"))
    assert data["seeds"] == "301000..301001"
    assert data["command"] == "python evaluate.py --agent default_knobs --task static_workload --episodes 2"
    low, high = data["tasks"]["static_workload"]["score"]["ci95"]
    assert low <= data["tasks"]["static_workload"]["score"]["mean"] <= high
    assert len(files["csv"].read_text(encoding="utf-8").splitlines()) == 3
    assert "<html" in files["html"].read_text(encoding="utf-8")


def test_json_without_a_file_is_all_there_is_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        evaluate.main(["--agent", "default_knobs", "--task", "1", "--episodes", "1", "--seed-start", "9", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["seeds"] == "9..9"


def test_missing_weights_are_an_error_and_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLMSERVE_WEIGHTS", str(tmp_path))
    assert evaluate.main(["--agent", "ppo", "--task", "all", "--episodes", "1"]) == 2
    said = capsys.readouterr()
    assert "python train.py --task static_workload" in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--episodes", "0"], "--episodes must be at least 1"),
        (["--agent", "oracle"], "there is no agent 'oracle'"),
        (["--task", "nowhere"], "there is no task 'nowhere'"),
        (["--seed-start", "-1"], "--seed-start must leave"),
    ],
)
def test_mistakes_are_named(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--agent", "default_knobs", *options]) == 2
    assert message in capsys.readouterr().err


def test_train_refuses_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(["--task", "1", "--steps", "0"]) == 2
    assert train.main(["--task", "1", "--set", "gamma"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def test_inference_without_a_key_says_which(no_keys: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert inference.main([]) == 2
    said = capsys.readouterr()
    assert "OPENAI_API_KEY" in said.err
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines] == ["[START]", "[END]"] * 3
    assert lines[1] == "[END] success=false steps=0 score=0.000 rewards="


def test_inference_plays_every_task_with_the_model_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with openai_server(lambda asked: json.dumps(ACTION)) as server:
        monkeypatch.setenv("API_BASE_URL", server.base_url)
        monkeypatch.setenv("MODEL_NAME", "tiny/model")
        monkeypatch.setenv("HF_TOKEN", "token")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        assert inference.main(["--decide-every", "50"]) == 0
    lines = capsys.readouterr().out.splitlines()
    starts = [line for line in lines if line.startswith("[START]")]
    assert [line.split()[1] for line in starts] == [
        "task=static_workload",
        "task=bursty_workload",
        "task=adversarial_multitenant",
    ]
    assert all(line.endswith("model=tiny/model") for line in starts)
    assert sum(line.startswith("[END] success=true steps=200") for line in lines) == 3
    assert len(server.requests) == 3 * 4


def test_a_model_is_scored_without_a_line_per_call() -> None:
    command = [sys.executable, "evaluate.py", "--agent", "llm", "--task", "static_workload", "--episodes", "1"]
    with openai_server(lambda asked: json.dumps({"batch_cap": 96})) as server:
        given = {"API_BASE_URL": server.base_url, "OPENAI_API_KEY": "secret", "MODEL_NAME": "small"}
        ended = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, check=True)
    assert "llm: 200 calls, 200 decisions, 0 unusable answers" in ended.stdout
    assert len(ended.stderr.splitlines()) < 10


def test_baseline_is_the_same_every_time(capsys: pytest.CaptureFixture[str]) -> None:
    reports = []
    for _ in range(2):
        assert main(["baseline", "--mode", "deterministic", "--task", "1"]) == 0
        reports.append(capsys.readouterr().out)
    assert reports[0] == reports[1]
    assert set(json.loads(reports[0])["tasks"]["static_workload"]) == {"default_knobs", "heuristic"}


def test_baseline_of_a_model_reports_what_it_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "artifacts" / "baseline.json"
    with openai_server(lambda asked: json.dumps(ACTION)) as server:
        monkeypatch.setenv("API_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        options = ["--task", "1", "--decide-every", "100", "--model", "gpt-4.1-mini", "--output", str(output)]
        assert main(["baseline", "--mode", "openai", *options]) == 0
    report = json.loads(output.read_text(encoding="utf-8"))
    assert report["usage"]["calls"] == 2
    assert report["usage"]["unparsable_answers"] == 0
    assert list(report["tasks"]["static_workload"]) == ["llm"]


def test_benchmark_rewrites_the_table_of_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from llmserve_env.evaluation.readme import END, START

    document = tmp_path / "README.md"
    document.write_text(f"{START}\n{END}\n", encoding="utf-8")
    options = ["--agent", "default_knobs", "random", "--episodes", "1", "--readme", str(document)]
    assert main(["benchmark", *options]) == 0
    assert "| `random` |" in document.read_text(encoding="utf-8")
    assert main(["benchmark", *options]) == 0
    assert "table unchanged" in capsys.readouterr().out
