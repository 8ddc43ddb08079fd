"""The reference against recorded runs of vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.recorded_runs import RecordedRun, load_runs
from benchmarks.step_cost import fit_step_cost
from llmserve_env.units import PS_PER_S
from tests.recordings import ALL_REAL, ALL_VIRTUAL
from tests.reference.replay import first_difference, replay


@pytest.mark.slow
@pytest.mark.parametrize("folder", ALL_VIRTUAL)
def test_virtual_clock_runs_are_reproduced_exactly(folder: Path) -> None:
    differences = {}
    for run in load_runs(folder):
        assert run.cost is not None
        difference = first_difference(run, run.cost)
        if difference is not None:
            differences[run.name] = difference
    assert differences == {}


@pytest.mark.parametrize("folder", ALL_REAL)
def test_real_runs_are_reproduced_within_the_bars_on_the_median(folder: Path) -> None:
    errors = np.array([latency_errors(run) for run in load_runs(folder)])
    ttft_p95, e2e_mean, makespan = np.median(errors, axis=0)
    assert ttft_p95 <= 0.04
    assert e2e_mean <= 0.03
    assert makespan <= 0.006


def test_an_unknown_engine_option_is_refused_by_name(tmp_path: Path) -> None:
    engine = {"max_num_seqs": 8, "blocks": 9, "mnbt": 64, "sliding_window": 16}
    description = {"run": "odd", "engine": engine, "block_size": 16, "max_model_len": 128}
    (tmp_path / "runs.json").write_text(json.dumps([description]))
    for name in ("steps", "items", "events", "requests"):
        pq.write_table(pa.table({"run": ["odd"]}), tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match="recorded run 'odd': unknown engine options \\['sliding_window'\\]"):
        load_runs(tmp_path)


def latency_errors(run: RecordedRun) -> tuple[float, float, float]:
    """Relative errors of TTFT p95, mean end-to-end latency and makespan."""
    engine, _ = replay(run, fit_step_cost(run.steps))
    arrivals_s = run.requests.arrival_at_ps / PS_PER_S
    first_s = np.array([request.first_token_at_ps for request in engine.requests]) / PS_PER_S
    last_s = np.array([request.finished_at_ps for request in engine.requests]) / PS_PER_S
    recorded_first_s = np.array([times[0] for times in run.token_times_s])
    recorded_last_s = np.array([times[-1] for times in run.token_times_s])
    return (
        relative_error(np.percentile(first_s - arrivals_s, 95), np.percentile(recorded_first_s - arrivals_s, 95)),
        relative_error((last_s - arrivals_s).mean(), (recorded_last_s - arrivals_s).mean()),
        relative_error(last_s.max(), recorded_last_s.max()),
    )


def relative_error(value: np.floating, truth: np.floating) -> float:
    return abs(float(value / truth) - 1.0)
