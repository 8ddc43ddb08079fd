"""Tasks of one's own: by path, by folder, from a log; defaults, references, and where they can be used."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import llmserve_env
from llmserve_env.agents.constant import constant_file, tuned_knobs
from llmserve_env.engine.costs import NO_HOST
from llmserve_env.errors import ConfigError, ReferencesNotFoundError, VersionMismatchError
from llmserve_env.graders.references import has_references, reference_for
from llmserve_env.planning.freezing import ensure_references, freeze
from llmserve_env.planning.tuning.recording import TunedConstant, record
from llmserve_env.profiles.host import list_hosts, load_host, save_host
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.files import BENCHMARK, TASKS_VARIABLE, known_ids, references_path, task_ids
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import with_changes
from llmserve_env.workloads import describe, sample
from tests.own_tasks import NUM_REQUESTS, TRACE_S, own_task, traced_task, write_log, write_task


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Task:
    """A task of one's own with references, frozen as shortly as possible."""
    task = load_task(write_task(tmp_path_factory.mktemp("own"), own_task(steps=8, window_s=5, id="frozen_own")))
    freeze(task, num_seeds=2, num_ceiling_seeds=1)
    return task


def test_what_is_left_out_has_defaults(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task()))
    assert task.suite == "own"
    assert task.reward.class_weights == {"chat": 1.0}
    assert task.deployment.waiting_room == (64,)
    assert task.deployment.memory_limit_gb == pytest.approx(0.9 * task.fleet.costs.memory_bytes / 1e9, abs=0.1)
    assert "prefill_decode_split" not in task.knobs.active


def test_a_price_replaces_that_of_the_profile(tmp_path: Path) -> None:
    fields = own_task()
    fields["deployment"]["price_usd_per_hour"] = 9.5
    assert load_task(write_task(tmp_path, fields)).fleet.costs.price_usd_per_hour == 9.5


def test_a_profile_of_ones_own_lies_beside_the_task(tmp_path: Path) -> None:
    profile = load_profile("h100-80gb.llama-3-8b")
    (tmp_path / "mine.json").write_text(profile.model_dump_json(), encoding="utf-8")
    fields = own_task()
    fields["deployment"]["profile"] = "mine.json"
    assert load_task(write_task(tmp_path, fields)).fleet.costs == profile.costs()


def test_without_a_host_the_gpu_alone_takes_time(tmp_path: Path) -> None:
    fleet = load_task(write_task(tmp_path, own_task())).fleet
    assert (fleet.host, fleet.async_scheduling) == (NO_HOST, False)


@pytest.mark.parametrize("name", list_hosts())
def test_beside_a_host_iterations_are_scheduled_ahead_as_in_vllm(tmp_path: Path, name: str) -> None:
    fields = own_task()
    fields["deployment"]["host"] = name
    fleet = load_task(write_task(tmp_path, fields)).fleet
    assert (fleet.host, fleet.async_scheduling) == (load_host(name).costs(), True)
    fields["deployment"]["async_scheduling"] = False
    assert not load_task(write_task(tmp_path, fields)).fleet.async_scheduling


def test_a_host_of_ones_own_lies_beside_the_task(tmp_path: Path) -> None:
    host = load_host(list_hosts()[0]).model_copy(update={"name": "mine", "front_end_ms": 7.0})
    save_host(host, tmp_path)
    fields = own_task()
    fields["deployment"]["host"] = "mine.json"
    task = load_task(write_task(tmp_path, fields))
    assert task.fleet.host == host.costs()
    assert with_changes(task, steps=10).fleet == task.fleet


def test_a_host_changes_the_digest_and_its_absence_does_not(tmp_path: Path) -> None:
    fields = own_task()
    plain = load_task(write_task(tmp_path, fields))
    assert not {"host", "async_scheduling"} & set(plain.model_dump()["deployment"])
    fields["deployment"]["host"] = list_hosts()[0]
    assert task_digest(load_task(write_task(tmp_path, fields))) != task_digest(plain)


def test_a_log_becomes_the_workload_at_its_scale(tmp_path: Path) -> None:
    write_log(tmp_path)
    task = load_task(write_task(tmp_path, traced_task()))
    assert describe(task.workload).mean_rps == pytest.approx(1.2 * NUM_REQUESTS / TRACE_S, rel=0.1)
    lengths = sample(task.workload, 3).prompt_tokens
    assert lengths.min() >= 50 and lengths.max() < 900


def test_a_changed_log_changes_the_task(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    path = write_task(tmp_path, traced_task())
    before = load_task(path)
    lines = log.read_text(encoding="utf-8").splitlines()
    log.write_text("\n".join(lines[: len(lines) // 2]) + "\n", encoding="utf-8")
    assert describe(load_task(path).workload).mean_rps != describe(before.workload).mean_rps


def test_a_trace_shorter_than_an_episode_is_repeated_only_when_asked(tmp_path: Path) -> None:
    write_log(tmp_path)
    with pytest.raises(ConfigError, match="repeat: true"):
        load_task(write_task(tmp_path, traced_task(steps=200)))
    fields = traced_task(steps=200)
    fields["workload"]["trace"]["repeat"] = True
    assert load_task(write_task(tmp_path, fields)).workload.horizon_s == 400


def test_a_folder_of_tasks_is_listed_behind_the_core_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_task(tmp_path, own_task())
    (tmp_path / "part.workload.yaml").write_text("workload: {}\n", encoding="utf-8")
    monkeypatch.setenv(TASKS_VARIABLE, str(tmp_path))
    assert task_ids() == [*BENCHMARK, "my_task"]
    assert set(known_ids()) > set(task_ids())
    assert load_task("my_task").name == "My task"


def test_an_id_of_a_shipped_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shipped task"):
        load_task(write_task(tmp_path, own_task(id="static_workload")))


def test_a_file_anywhere_is_a_gymnasium_environment(tmp_path: Path) -> None:
    gym_id = llmserve_env.register_file(write_task(tmp_path, own_task(id="anywhere")))
    env = gym.make(gym_id)
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
    assert np.isfinite(float(env.step(env.action_space.sample())[1]))


def test_without_references_grading_names_the_command(tmp_path: Path) -> None:
    task = load_task(write_task(tmp_path, own_task()))
    with pytest.raises(ReferencesNotFoundError, match=r"llmserve task freeze my_task\.yaml"):
        reference_for(task)


def test_frozen_references_lie_beside_the_file_and_say_how_they_were_made(frozen: Task) -> None:
    assert frozen.file is not None
    content = json.loads(references_path(frozen.file).read_text(encoding="utf-8"))
    assert content["provenance"]["command"] == "llmserve task freeze frozen_own.yaml --seeds 2 --ceiling-seeds 1"
    reference = reference_for(frozen)
    assert all(reference.optimum[name] - reference.floor[name] >= 0.02 for name in frozen.grader.weights)
    assert ensure_references(frozen) is None


def test_references_of_another_content_are_refused(frozen: Task) -> None:
    changed = frozen.model_copy(update={"steps": frozen.steps - 1})
    assert not has_references(changed)
    with pytest.raises(VersionMismatchError, match="has changed since"):
        reference_for(changed)


def test_a_freeze_that_fails_leaves_no_references(tmp_path: Path) -> None:
    fields = own_task(id="flat", steps=4, grader={"weights": {"throughput": 0.5, "stability": 0.5}})
    fields["workload"]["sources"][0]["arrivals"] = {"kind": "off"}
    task = load_task(write_task(tmp_path, fields))
    with pytest.raises(ConfigError, match="hardly moves"):
        freeze(task, num_seeds=1, num_ceiling_seeds=1)
    assert not (tmp_path / "flat.references.json").exists()


def test_a_tuned_constant_lies_beside_the_file(frozen: Task) -> None:
    knobs = frozen.knobs_from_mapping({"batch_cap": 96, "kv_budget_fraction": 0.4, "quantization_tier": "INT8"})
    path = record(frozen, TunedConstant(knobs, 0.5), "llmserve tune frozen_own.yaml", 4, 2)
    assert frozen.file is not None and path == constant_file(frozen) == frozen.file.with_suffix(".tuned.json")
    assert tuned_knobs(frozen).tolist() == knobs.tolist()
    with pytest.raises(VersionMismatchError, match="has changed since"):
        tuned_knobs(frozen.model_copy(update={"steps": frozen.steps - 1}))
