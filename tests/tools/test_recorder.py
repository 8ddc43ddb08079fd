"""The recorder of vLLM, without a vLLM: its traffic, its plans and the files it packs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.fidelity import check_virtual
from benchmarks.gpu_recordings import RECORDINGS
from benchmarks.recorded_runs import load_runs
from tests.recordings import REAL, VIRTUAL
from tools.recorder.__main__ import chosen
from tools.recorder.decision_files import pack_decisions
from tools.recorder.decisions import ADMITTED, CONTINUED, DECODE, RESUMED, DecisionLog
from tools.recorder.scheduler_plans import CPU_RUNS, VIRTUAL_RUNS
from tools.recorder.scheduler_runs import draw_run, prompts_of

LIMIT_BYTES = 12_000_000


@pytest.mark.parametrize(("folder", "runs"), [(VIRTUAL, VIRTUAL_RUNS), (REAL, CPU_RUNS)], ids=["virtual", "cpu"])
def test_every_planned_run_is_recorded_with_the_planned_options(folder: Path, runs: tuple[Any, ...]) -> None:
    recorded = {run["run"]: run for run in json.loads((folder / "runs.json").read_text())}
    assert set(recorded) == {run.name for run in runs}
    for run in runs:
        assert recorded[run.name]["engine"] == run.engine
        assert recorded[run.name]["trace"] == run.traffic


@pytest.mark.parametrize(("folder", "runs"), [(VIRTUAL, VIRTUAL_RUNS), (REAL, CPU_RUNS)], ids=["virtual", "cpu"])
def test_recorded_requests_are_those_the_seed_draws(folder: Path, runs: tuple[Any, ...]) -> None:
    recorded = {run.name: run.requests for run in load_runs(folder)}
    for run in runs:
        drawn = draw_run(run)
        assert recorded[run.name].prompt_tokens.tolist() == drawn.prompt_tokens.tolist()
        assert recorded[run.name].output_tokens.tolist() == drawn.output_tokens.tolist()


def test_all_recordings_together_stay_within_their_size() -> None:
    files = [path for path in RECORDINGS.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LIMIT_BYTES


def test_requests_of_one_prefix_begin_with_the_same_tokens() -> None:
    (run,) = chosen(VIRTUAL_RUNS, ["shared_prefixes"])
    traffic = draw_run(run)
    prompts = prompts_of(traffic, 1, (10, 1_000))
    begins: dict[int, set[tuple[int, ...]]] = {}
    for prompt, prefix, count in zip(prompts, traffic.prefix_id, traffic.prefix_tokens, strict=True):
        if prefix >= 0:
            begins.setdefault(int(prefix), set()).add(tuple(prompt[:count]))
    assert len(begins) == 6 and all(len(found) == 1 for found in begins.values())
    assert [len(prompt) for prompt in prompts] == traffic.prompt_tokens.tolist()


def test_an_unknown_run_is_refused_with_those_there_are() -> None:
    with pytest.raises(SystemExit, match="no planned run is called cap9; planned are cap8"):
        chosen(VIRTUAL_RUNS, ["cap9"])


@pytest.mark.parametrize(
    ("past", "is_admitted", "is_resumed", "kind"),
    [
        (0, True, False, ADMITTED),
        (16, False, True, RESUMED),
        (90, False, False, CONTINUED),
        (99, False, False, CONTINUED),
        (104, False, False, DECODE),
    ],
)
def test_items_are_told_apart_as_the_cost_model_does(past: int, is_admitted: bool, is_resumed: bool, kind: int) -> None:
    request = SimpleNamespace(num_prompt_tokens=100, num_tokens=105)
    assert DecisionLog._kind(request, past, is_admitted, is_resumed) == kind


def test_packed_decisions_are_read_as_they_were_written(tmp_path: Path) -> None:
    log = DecisionLog()
    log.steps, log.times_s = [[0] * 15, [0] * 15], [[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]]
    log.items = [(0, 0, 5, 0, ADMITTED, 0, 0), (1, 0, 1, 5, DECODE, 0, 0)]
    log.preempted("0")
    log.finished(1, "0")
    columns = {
        "arrival": [0.0],
        "prompt_len": [5],
        "out_len": [2],
        "priority": [0],
        "prefix_id": [3],
        "prefix_len": [4],
    }
    arrays = {name: np.array(values) for name, values in columns.items()}
    log.save(tmp_path / "one.decisions.npz", **arrays, token_times=np.array([0.5, 1.0]))
    cost = {"base": 0.5, "per_dec": 0.0, "per_ctx": 0.0, "per_pf": 0.0, "per_pfwork": 0.0}
    engine = {"max_num_seqs": 1, "blocks": 9, "mnbt": 64}
    described = {"run": "one", "engine": engine, "block_size": 16, "max_model_len": 128, "cost": cost}
    (tmp_path / "one.json").write_text(json.dumps(described))
    assert pack_decisions(tmp_path, tmp_path / "packed") == ["one"]
    (run,) = load_runs(tmp_path / "packed")
    assert run.items.n_tokens.tolist() == [5, 1] and run.items.kind.tolist() == [ADMITTED, DECODE]
    assert [(event.step, event.event) for event in run.events] == [(2, "preempt"), (1, "finish")]
    assert run.token_times_s[0].tolist() == [0.5, 1.0] and run.steps.ended_at_s.tolist() == [0.5, 1.0]
    assert run.requests.prefix_id.tolist() == [3] and run.requests.prefix_tokens.tolist() == [4]
    # The record claims a preemption that did not happen.
    (result,) = check_virtual(tmp_path / "packed")
    assert result.difference is not None
