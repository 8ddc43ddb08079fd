from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest
import yaml

from llmserve_env.cli import trace as command
from llmserve_env.errors import ConfigError, TraceFormatError
from llmserve_env.workloads.spec import parse_workload
from llmserve_env.workloads.traces.fit_arrivals import KINDS
from llmserve_env.workloads.traces.formats import FORMATS, OPTIONAL, REQUIRED, TIME_UNITS
from llmserve_env.workloads.traces.text import sparkline


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["trace", *arguments])
    status = args.run(args)
    assert isinstance(status, int)
    return status


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small log with two tenants and a bad row."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    at_s = np.cumsum(rng.exponential(0.5, 800))
    rows = [
        f"{t:.3f},{rng.integers(10, 500)},{rng.integers(1, 90)},{'ab'[i % 3 == 0]}" for i, t in enumerate(at_s.tolist())
    ]
    log = tmp_path / "requests.csv"
    log.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,tenant", *rows, "soon,1,1,a"]))
    return log


def test_import_show_fit_is_three_commands(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("import", str(log), "--format", "csv", "--licence", "internal") == 0
    out, err = capsys.readouterr()
    assert "requests.parquet: 800 requests from requests.csv (csv)" in out
    assert "left out: 1 bad rows, 0 failed requests" in out
    assert f"{log}:802: arrival_s: 'soon'; allowed" in err

    assert run("show", "requests.parquet", "--plot", "requests.png") == 0
    out, _ = capsys.readouterr()
    assert "800 requests in" in out
    assert "licence: internal" in out
    assert "2 tenants; the busiest:" in out
    assert Path("requests.png").read_bytes().startswith(b"\x89PNG")

    assert run("fit", "requests.parquet", "--ttft-slo-ms", "250", "--horizon-s", "100") == 0
    out, _ = capsys.readouterr()
    assert "fidelity over 20 seeds" in out
    assert "IDC 10 s" in out and "output p99" in out
    text = Path("requests.workload.yaml").read_text(encoding="utf-8")
    assert "sha256" in text.splitlines()[0] and "internal" in text.splitlines()[1]
    spec = parse_workload(yaml.safe_load(text)["workload"])
    assert (spec.horizon_s, spec.tenants, spec.classes[0].ttft_slo_ms) == (100, ("a", "b"), 250.0)


def test_strict_import_fails(log: Path) -> None:
    with pytest.raises(TraceFormatError, match=r":802: arrival_s"):
        run("import", str(log), "--format", "csv", "--strict")


def test_outputs_are_not_overwritten_unasked(log: Path) -> None:
    run("import", str(log), "--format", "csv")
    with pytest.raises(ConfigError, match="exists; use --overwrite"):
        run("import", str(log), "--format", "csv")
    assert run("import", str(log), "--format", "csv", "--overwrite") == 0
    with pytest.raises(ConfigError, match="does not exist; create it first"):
        run("fit", "requests.parquet", "-o", "nowhere/x.yaml")


def test_columns_are_given_as_pairs(log: Path) -> None:
    log.write_text("t,in,out\n0,1,1\n1,2,2\n")
    columns = ["--column", "arrival=t", "--column", "prompt_tokens=in", "--column", "output_tokens=out"]
    assert run("import", str(log), "--format", "csv", *columns) == 0
    with pytest.raises(ConfigError, match="--column 'arrival' is not FIELD=NAME"):
        run("import", str(log), "--format", "csv", "--column", "arrival", "-o", "y.parquet")


def test_a_picture_of_an_unknown_kind_is_refused(log: Path) -> None:
    run("import", str(log), "--format", "csv")
    with pytest.raises(ConfigError, match=r"must end in one of \.png, \.svg, \.pdf"):
        run("show", "requests.parquet", "--plot", "requests.bmp")


def test_the_command_offers_what_the_library_knows() -> None:
    assert tuple(FORMATS) == command.FORMAT_NAMES
    assert command.TIME_UNIT_NAMES == TIME_UNITS
    assert command.ARRIVAL_KINDS == KINDS


def test_help_names_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("import", "--help")
    shown = capsys.readouterr().out
    assert all(field in shown for field in (*REQUIRED, *OPTIONAL) if field != "block_ids")


def test_only_silence_is_blank_in_a_sparkline() -> None:
    assert sparkline(np.array([0.0, 0.001, 0.5, 1.0])) == " ▁▄█"
    assert sparkline(np.zeros(3)) == "   "
