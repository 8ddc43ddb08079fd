"""The recorder with a real vLLM: recordings on the virtual clock can be made again, and are the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fidelity import check_virtual
from benchmarks.recorded_runs import load_runs
from benchmarks.replay import first_difference, recorded_decisions
from tests.backends.real.live import options
from tests.recordings import VIRTUAL
from tests.server.running import ROOT
from tools.recorder.decision_files import pack_decisions

pytestmark = pytest.mark.real
AGAIN = ("priority_small_pool", "async_shared_prefixes", "draft3_small_pool", "cap_and_budget_turned")


def record(folder: Path, *arguments: str) -> None:
    """Run the recorder in the engine's environment."""
    python = options(folder).python
    subprocess.run(
        [str(python), "-m", "tools.recorder", *arguments, "--out", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        check=True,
    )
    pack_decisions(folder, folder / "packed")


def test_a_recording_of_the_scheduler_can_be_made_again(tmp_path: Path) -> None:
    record(tmp_path, "virtual", *(word for name in AGAIN for word in ("--run", name)))
    kept = {run.name: run for run in load_runs(VIRTUAL)}
    for run in load_runs(tmp_path / "packed"):
        assert first_difference(recorded_decisions(run), recorded_decisions(kept[run.name])) is None
    assert [result.difference for result in check_virtual(tmp_path / "packed")] == [None] * len(AGAIN)


def test_a_recording_of_the_whole_engine_accounts_for_every_token(tmp_path: Path) -> None:
    record(tmp_path, "cpu", "--model", str(options(tmp_path).model), "--run", "cpu_cap16_heavy")
    (run,) = load_runs(tmp_path / "packed")
    emitted = np.array([len(times) for times in run.token_times_s])
    assert emitted.tolist() == run.requests.output_tokens.tolist()
    assert run.items.n_tokens.sum() == (run.requests.prompt_tokens + run.requests.output_tokens - 1).sum()
    by_step = np.bincount(run.items.step, weights=run.items.n_tokens)
    assert by_step.max() <= 512 and np.bincount(run.items.step).max() == 16
