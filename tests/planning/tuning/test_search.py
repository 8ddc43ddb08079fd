"""The search for constants: repeatable, within ranges, and at least as good as the defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmserve_env.agents import constant
from llmserve_env.agents.constant import TunedAgent, tuned_knobs
from llmserve_env.engine.knobs import KNOB, KNOBS, named
from llmserve_env.errors import VersionMismatchError, WeightsNotFoundError
from llmserve_env.planning.tuning.recording import TunedConstant, record
from llmserve_env.planning.tuning.search import mean_score, search, variations
from llmserve_env.tasks.catalog import load_task

KNOBS_FOUND = load_task("static_workload").knobs_from_mapping({"batch_cap": 96, "kv_budget_fraction": 0.3})


@pytest.fixture
def tuned_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuned.json"
    monkeypatch.setattr(constant, "tuned_file", lambda: path)
    return path


def test_a_search_is_repeatable_and_no_worse_than_the_defaults() -> None:
    task = load_task("static_workload")
    one, other = (search(task, num_trials=4, num_seeds=1, seed=3) for _ in range(2))
    assert one.knobs.tolist() == other.knobs.tolist()
    assert one.score == mean_score(task, one.knobs, [200_000]) >= mean_score(task, task.default_knobs, [200_000])
    for name in task.masked_knobs:
        assert named(one.knobs)[name] == named(task.default_knobs)[name]


def test_variations_change_one_knob_and_stay_in_range() -> None:
    start = {"batch_cap": 500.0, "kv_budget_fraction": 0.12, "speculation_depth": 8.0, "priority_routing": 0.0}
    found = variations(start, KNOBS)
    for variation in found:
        changed = [name for name in start if variation[name] != start[name]]
        assert len(changed) == 1
        assert KNOB[changed[0]].low <= variation[changed[0]] <= KNOB[changed[0]].high
    assert {v["speculation_depth"] for v in found} == set(map(float, range(9)))


def test_what_is_recorded_is_what_the_agent_plays(tuned_json: Path) -> None:
    record(load_task("static_workload"), TunedConstant(KNOBS_FOUND, 0.9), "llmserve tune", 10, 2)
    assert tuned_knobs(load_task("static_workload")).tolist() == KNOBS_FOUND.tolist()
    entry = json.loads(tuned_json.read_text(encoding="utf-8"))["tasks"]["static_workload"]
    assert (entry["command"], entry["seeds"], entry["score"]) == ("llmserve tune", "200000..200001", 0.9)


def test_a_task_without_a_constant_names_the_command(tuned_json: Path) -> None:
    with pytest.raises(WeightsNotFoundError, match="llmserve tune --task bursty_workload"):
        TunedAgent().reset(load_task("bursty_workload"), [])


def test_a_constant_of_another_version_is_refused(tuned_json: Path) -> None:
    record(load_task("static_workload"), TunedConstant(KNOBS_FOUND, 0.9), "llmserve tune", 10, 2)
    data = json.loads(tuned_json.read_text(encoding="utf-8"))
    data["tasks"]["static_workload"]["task_version"] = 99
    tuned_json.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(VersionMismatchError, match="run llmserve tune"):
        tuned_knobs(load_task("static_workload"))
