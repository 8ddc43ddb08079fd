"""References belong to the task files they were computed from."""

from __future__ import annotations

import pytest

from llmserve_env.errors import ReferencesNotFoundError, VersionMismatchError
from llmserve_env.graders.components import COMPONENTS
from llmserve_env.graders.references import reference_for, references_of
from llmserve_env.tasks.catalog import BENCHMARK, EXTENDED, load_task
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.variants import with_changes

SHIPPED = (*BENCHMARK, *EXTENDED)


@pytest.mark.parametrize("task_id", SHIPPED)
def test_references_are_those_of_the_task_as_it_is(task_id: str) -> None:
    task = load_task(task_id)
    found, reference = references_of(task), reference_for(task)
    assert (found["task_id"], found["task_digest"]) == (task_id, task_digest(task))
    assert set(reference.floor) == set(reference.optimum) == set(COMPONENTS)


@pytest.mark.parametrize("task_id", SHIPPED)
def test_every_graded_component_has_room_between_its_ends(task_id: str) -> None:
    task = load_task(task_id)
    reference = reference_for(task)
    assert all(reference.optimum[name] - reference.floor[name] >= 0.02 for name in task.grader.weights)


@pytest.mark.parametrize("task_id", SHIPPED)
def test_references_say_how_they_were_made(task_id: str) -> None:
    assert {"command", "floor", "optimum"} <= set(references_of(load_task(task_id))["provenance"])


@pytest.mark.parametrize("task_id", SHIPPED)
def test_a_task_that_has_changed_is_not_graded_on_the_references_of_the_original(task_id: str) -> None:
    changed = load_task(task_id).model_copy(update={"steps": 7})
    with pytest.raises(VersionMismatchError, match=f"has changed since .* llmserve task freeze {task_id}"):
        reference_for(changed)


def test_a_task_without_a_file_has_no_references() -> None:
    with pytest.raises(ReferencesNotFoundError, match="llmserve task freeze"):
        reference_for(with_changes(load_task("static_workload"), name="Mine"))


def test_the_digest_follows_the_content() -> None:
    task = load_task("static_workload")
    assert task_digest(task) == task_digest(task.model_copy())
    assert task_digest(task) != task_digest(task.model_copy(update={"steps": 100}))
