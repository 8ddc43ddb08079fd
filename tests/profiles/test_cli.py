from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from llmserve_env.cli import profile as command
from llmserve_env.errors import ProfileError
from llmserve_env.profiles import list_profiles, load_profile, predict
from llmserve_env.profiles.host import list_hosts
from tests.profiles.conftest import ADDED, FITTED, MEASUREMENTS

BATCHES = [{"decode": [[1, 1024]]}, {"decode": [[32, 1024], [4, 8000]], "prefill": [[512, 0], [100, 300]]}]


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["profile", *arguments])
    status = args.run(args)
    assert isinstance(status, int)
    return status


def test_list_names_every_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*list_profiles(), *list_hosts()])


def test_predict_answers_json_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "batches.json"
    path.write_text(json.dumps(BATCHES))
    assert run("predict", "h200-141gb.llama-3-8b", "--tier", "INT8", "--batches", str(path), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    profile = load_profile("h200-141gb.llama-3-8b")
    assert answer == [
        {"gpu_ms": ms, "host_ms": 0.0, "iteration_ms": ms}
        for ms in (
            predict(profile, "INT8", [(1, 1024)]),
            predict(profile, "INT8", [(32, 1024), (4, 8000)], [(512, 0), (100, 300)]),
        )
    ]


def test_predict_reads_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(BATCHES)))
    assert run("predict", "a100-40gb.llama-3-8b", "--batches", "-") == 0
    assert "decode 32 x 1024, decode 4 x 8000, prefill 512 after 0" in capsys.readouterr().out


def test_predict_and_show_say_which_clock_binds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    batches = [{"decode": [[32, 1024]]}, {"decode": [[32, 1024]], "prefill": [[512, 0]]}]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(batches)))
    assert run("predict", "h200-141gb.llama-3-8b", "--batches", "-", "--host", "xeon-h200-vllm-0.26") == 0
    decode, mixed = capsys.readouterr().out.splitlines()
    assert "the GPU binds" in decode
    assert "the host binds" in mixed
    assert run("show", "h200-141gb.llama-3-8b", "--no-plot", "--host", "bare-metal-vllm-0.12") == 0
    printed = capsys.readouterr().out
    assert "host bare-metal-vllm-0.12: vLLM 0.12" in printed
    assert "binds" in printed


@pytest.mark.parametrize("text", ["{}", '[{"decode": [[1]]}]', '[{"decoding": []}]', "nothing"])
def test_predict_refuses_what_is_no_list_of_iterations(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    with pytest.raises(ProfileError, match="batches must be a JSON list of"):
        run("predict", "a100-40gb.llama-3-8b", "--batches", "-")


def test_show_prints_tables_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "curves.png"
    assert run("show", "h200-141gb.llama-3-8b", "--plot", str(plot)) == 0
    printed = capsys.readouterr().out
    assert "decode 128 x 1024 and prefill 512" in printed
    assert "held-out %" in printed
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_fit_writes_the_measured_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(MEASUREMENTS / f"h200-141gb.{name}.json") for name in FITTED]
    assert run("fit", *files, "--gpu", "h200-141gb", "--out", str(tmp_path)) == 0
    assert "FP16: measured, error median" in capsys.readouterr().out
    later = [str(MEASUREMENTS / f"h200-141gb.{name}.json") for name in ADDED]
    path = str(tmp_path / "h200-141gb.llama-3-8b.json")
    assert run("fit", *later, "--add-to", path, "--out", str(tmp_path)) == 0
    assert load_profile(path) == load_profile("h200-141gb.llama-3-8b")


def test_fit_asks_for_the_card(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ProfileError, match=r"--gpu NAME.*--add-to NAME"):
        run("fit", str(MEASUREMENTS / "h200-141gb.fp16.json"))


def test_compare_prints_errors_by_kind(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(MEASUREMENTS / "h200-141gb.independent.json")
    assert run("compare", "h200-141gb.llama-3-8b", file, "--rows") == 0
    printed = capsys.readouterr().out
    assert "verification" in printed
    assert printed.count("\n") > 60


def test_compare_needs_points_of_the_tier() -> None:
    with pytest.raises(ProfileError, match="hold no INT4 points"):
        run("compare", "h200-141gb.llama-3-8b", str(MEASUREMENTS / "h200-141gb.fp16.json"), "--tier", "INT4")


def test_a_file_that_is_no_measurement_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(ProfileError, match=r"other\.json is not a measurements file"):
        run("compare", "h200-141gb.llama-3-8b", str(path))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--source", "aiconfigurator"], "needs --gpu"),
        (["--source", "vllm-bench"], "need --base"),
        (["--source", "vllm-bench", "--base", "a100-40gb.llama-3-8b", "--name", "x"], "either --results"),
    ],
)
def test_import_says_what_is_missing(arguments: list[str], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        run("import", *arguments)


@pytest.mark.parametrize("command", [["fit"], ["import", "--source", "vllm-bench"]])
def test_a_bench_result_becomes_a_profile_whose_memory_can_be_given(tmp_path: Path, command: list[str]) -> None:
    result = tmp_path / "latency.json"
    result.write_text(json.dumps({"avg_latency": 2.0, "batch_size": 8, "input_len": 256, "output_len": 128}))
    base = ["--base", "a100-40gb.llama-3-8b", "--name", "mine.llama-3-8b", "--out", str(tmp_path)]
    assert run(*command, *base, "--memory-gb", "48", "--results", str(result)) == 0
    profile = load_profile(tmp_path / "mine.llama-3-8b.json")
    assert profile.provenance.source == "vllm bench results"
    assert profile.gpu.memory_bytes == 48 * 10**9


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--results", "x.json"], "need --base"),
        (["--base", "h200-141gb.qwen3-32b", "--name", "x", "--tier", "INT4", "--results", "x.json"], "--tier INT4: "),
        (
            ["--base", "h200-141gb.qwen3-32b", "--name", "x", "--memory-gb", "0", "--results", "x.json"],
            "above 0; got 0",
        ),
        (
            ["--base", "h200-141gb.qwen3-32b", "--name", "x", "--results", "nowhere.json"],
            "nowhere.json: cannot be read as a result",
        ),
    ],
)
def test_fit_says_which_argument_is_wrong(arguments: list[str], words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        run("fit", *arguments)
