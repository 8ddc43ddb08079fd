"""The experiment on a live engine in process: the CPU build of vLLM stands in for a card."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.backends.real.live import options
from tests.server.running import ROOT
from tools.card_experiment.__main__ import main
from tools.card_experiment.records import load

pytestmark = pytest.mark.real


def test_policies_are_played_on_a_live_engine_and_kept(tmp_path: Path) -> None:
    engine = options(tmp_path)
    command = [
        str(engine.python),
        "-m",
        "tools.card_experiment",
        "play",
        "--engine",
        "cpu",
        "--model",
        str(engine.model),
    ]
    command += ["--policy", "vllm", "heuristic", "--seeds", "1", "--windows", "8", "--out", str(tmp_path / "out")]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    records = load(tmp_path / "out")
    assert [record.key for record in records] == [("heuristic", 1), ("vllm", 1)]
    for record in records:
        # A busy machine may finish none of them in eight windows, but it begins some.
        assert np.isfinite(record.requests.ttft_ms).sum() > 0 and record.facts["num_blocks"] > 100
        assert len(record.windows["reward"]) == 8
    assert main(["report", "--source", str(tmp_path / "out")]) == 0


def test_the_cost_of_the_plug_in_is_measured_on_a_live_engine(tmp_path: Path) -> None:
    engine = options(tmp_path)
    command = [str(engine.python), "-m", "tools.card_experiment", "overhead", "--engine", "cpu"]
    command += ["--model", str(engine.model), "--out", str(tmp_path / "out")]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    rows = json.loads((tmp_path / "out" / "overhead.json").read_text(encoding="utf-8"))
    assert [row["is_recording"] for row in rows] == [False, True]
    assert all(row["blocks"] >= 3 and row["own_ms"] > 0.0 and row["low"] <= row["added"] <= row["high"] for row in rows)
