"""Versions of tasks: by name, by plain id, in Gymnasium's registry and in logs."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

import llmserve_env  # noqa: F401 - registers the ids
from llmserve_env.env.episode import Episode, replay
from llmserve_env.errors import UnknownTaskError
from llmserve_env.tasks.catalog import BENCHMARK, load_task, load_version
from llmserve_env.tasks.files import base_id, newest_versions, references_path, task_files


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_both_versions_of_a_core_task_can_be_asked_for(task_id: str) -> None:
    for version in (1, 2):
        task = load_task(f"{task_id}-v{version}")
        assert (task.id, task.version, task.versioned_id) == (task_id, version, f"{task_id}-v{version}")
        assert (task.gym_id in gym.registry) == (version <= load_task(task_id).version)


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_the_plain_id_means_the_newest_version_with_references(task_id: str) -> None:
    of_task = {name: path for name, path in task_files().items() if base_id(name) == task_id}
    frozen = [name for name, path in of_task.items() if references_path(path).is_file()]
    assert load_task(task_id).version == max(load_task(name).version for name in frozen)


def test_a_version_counts_once_its_references_are_frozen(tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"{name}.yaml" for name in ("a-v1", "a-v2", "b"))
    assert newest_versions([first, second, other]) == {"a": first}
    references_path(first).touch()
    assert newest_versions([first, second, other]) == {"a": first}
    references_path(second).touch()
    assert newest_versions([first, second, other]) == {"a": second}


def test_a_log_is_replayed_on_the_version_it_was_played_on() -> None:
    for version in (1, 2):
        episode = Episode(load_task(f"static_workload-v{version}"))
        episode.reset(3)
        for _ in range(5):
            episode.step(episode.task.default_knobs)
        again = replay(episode.log())
        assert again.task.version == version
        assert again.log() == episode.log()


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownTaskError, match="static_workload-v9"):
        load_task("static_workload-v9")
    assert load_version("static_workload", 9).version == load_task("static_workload").version
    assert load_version("azure_code", 1).id == "azure_code"


def test_the_spike_as_asked_is_a_variant_of_the_third_task() -> None:
    spike, task = load_task("adversarial_spike"), load_task("adversarial_multitenant-v2")
    assert (spike.suite, spike.deployment, spike.reward) == ("variants", task.deployment, task.reward)
    (source,) = spike.workload.sources
    assert source.arrivals.model_dump()["factor"] == 10
