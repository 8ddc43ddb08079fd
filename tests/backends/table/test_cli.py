"""`llmserve table` from the shell's side."""

from __future__ import annotations

from pathlib import Path

import pytest

import llmserve_env.backends.table.grid as grids
from llmserve_env.backends.table.grid import Grid
from llmserve_env.backends.table.lookup import LookupTable
from llmserve_env.cli.main import main


def test_export_then_show(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "QUICK_GRID", Grid((1, 8), (0.5, 1.0), (0,), (0,), (128,)))
    path = tmp_path / "h200.parquet"
    command = ["table", "export", "--task", "1", "--profile", "h200-141gb.llama-3-8b", "--quick", "-o", str(path)]
    assert main(command) == 0
    assert "4 points of static_workload on h200-141gb.llama-3-8b" in capsys.readouterr().out
    table = LookupTable.load(path)
    assert table.metadata["command"] == (
        "llmserve table export --task 1 --profile h200-141gb.llama-3-8b --quick -o h200.parquet"
    )
    assert main(["table", "show", str(path), "--kv", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "profile: h200-141gb.llama-3-8b" in shown
    assert "tokens/s" in shown
    assert main(command) == 2
    assert "exists; give another name or --overwrite" in capsys.readouterr().err


def test_a_bad_file_is_an_error_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "show", str(tmp_path / "none.parquet")]) == 2
    assert "no such file" in capsys.readouterr().err
