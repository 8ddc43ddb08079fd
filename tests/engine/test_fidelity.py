"""The compiled engine against recorded runs of vLLM."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks import fidelity
from benchmarks.recorded_runs import RecordedRun, load_runs
from benchmarks.replay import compare
from benchmarks.step_cost import StepCost
from tests.recordings import ALL_REAL, ALL_VIRTUAL, REAL, VIRTUAL

pytestmark = pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"),
    reason="a million recorded decisions need compiled kernels",
)


@pytest.fixture(scope="module")
def shortest_run() -> tuple[RecordedRun, StepCost]:
    runs = load_runs(VIRTUAL)
    run = min((run for run in runs if run.options.speculation_depth == 0), key=lambda run: len(run.items.step))
    assert run.cost is not None
    return run, run.cost


@pytest.mark.parametrize("folder", ALL_VIRTUAL)
def test_every_virtual_clock_run_is_reproduced_exactly(folder: Path) -> None:
    results = fidelity.check_virtual(folder)
    assert results
    assert {result.name: result.difference for result in results if result.difference is not None} == {}


@pytest.mark.parametrize("folder", ALL_REAL)
def test_real_runs_are_within_the_bars_on_the_median(folder: Path) -> None:
    results, failed = fidelity.check_real(folder)
    assert failed == {}
    errors = fidelity.summary([], results)["real"]["median_error"]
    assert errors["e2e_mean"] <= 0.03
    assert errors["ttft_p95"] <= 0.04
    assert errors["makespan"] <= 0.006


def test_a_wrong_decision_in_the_record_is_found(shortest_run: tuple[RecordedRun, StepCost]) -> None:
    run, cost = shortest_run
    n_tokens = run.items.n_tokens.copy()
    n_tokens[100] += 1
    difference = compare(replace(run, items=replace(run.items, n_tokens=n_tokens)), cost).difference
    assert difference is not None and difference.startswith("items row 100:")


def test_two_microseconds_in_the_record_are_found(shortest_run: tuple[RecordedRun, StepCost]) -> None:
    run, cost = shortest_run
    late = (run.token_times_s[0] + 2e-6, *run.token_times_s[1:])
    difference = compare(replace(run, token_times_s=late), cost).difference
    assert difference is not None and difference.startswith("token_times_ps row 0:")


def test_one_block_more_in_the_record_is_found(shortest_run: tuple[RecordedRun, StepCost]) -> None:
    run, cost = shortest_run
    options = replace(run.options, num_blocks=run.options.num_blocks - 1)
    difference = compare(replace(run, options=options), cost).difference
    assert difference is not None and difference.startswith("free_blocks row 0:")


def test_a_limit_turned_a_window_too_late_is_found() -> None:
    (run,) = (run for run in load_runs(VIRTUAL) if run.changes)
    assert run.cost is not None
    late = tuple(replace(change, at_ps=change.at_ps + 10**12) for change in run.changes)
    difference = compare(replace(run, changes=late), run.cost).difference
    assert difference is not None and difference.startswith("items row")


def test_a_prefix_that_is_not_shared_is_found() -> None:
    run = next(run for run in load_runs(VIRTUAL) if (run.requests.prefix_id >= 0).any())
    assert run.cost is not None
    alone = replace(run.requests, prefix_id=np.full_like(run.requests.prefix_id, -1))
    difference = compare(replace(run, requests=alone), run.cost).difference
    assert difference is not None and difference.startswith("items row")


def test_a_missing_directory_is_said_and_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fidelity.main(["--truth", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {
        "virtual": {"runs": 0, "exact": 0, "mismatches": []},
        "real": {"runs": 0, "median_error": dict.fromkeys(fidelity.ERROR_NAMES)},
    }
    assert printed.err.count("skipped") == 2


def test_one_set_alone_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / fidelity.REAL_SET).symlink_to(REAL)
    assert fidelity.main(["--truth", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["virtual"]["runs"], report["real"]["runs"]) == (0, len(json.loads((REAL / "runs.json").read_text())))


def test_more_columns_are_ignored_and_an_unknown_option_is_reported(tmp_path: Path) -> None:
    source = VIRTUAL
    kept, odd = json.loads((source / "runs.json").read_text())[:2]
    odd["engine"]["sliding_window"] = 16
    (tmp_path / "runs.json").write_text(json.dumps([kept, odd]))
    for name in ("steps", "items", "events", "requests"):
        table = pq.read_table(source / f"{name}.parquet")
        rows = table.filter(pc.is_in(table["run"], pa.array([kept["run"], odd["run"]])))
        pq.write_table(rows.append_column("remark", pa.array(["new"] * len(rows))), tmp_path / f"{name}.parquet")
    results = {result.name: result.difference for result in fidelity.check_virtual(tmp_path)}
    assert results[kept["run"]] is None
    assert "sliding_window" in str(results[odd["run"]])
