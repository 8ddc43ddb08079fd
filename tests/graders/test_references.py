"""References belong to the task files they were computed from."""

from __future__ import annotations

import pytest

from llmserve_env.errors import ReferencesNotFoundError
from llmserve_env.graders.references import frozen_references, reference_for, task_digest
from llmserve_env.tasks.catalog import BENCHMARK, load_task

REFREEZE = "the task changed after its references were frozen: run python -m benchmarks.adaptivity --search"


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_references_are_those_of_the_task_as_it_is(task_id: str) -> None:
    assert frozen_references()["tasks"][task_id]["task_digest"] == task_digest(load_task(task_id)), REFREEZE


@pytest.mark.parametrize("task_id", BENCHMARK)
def test_every_graded_component_has_room_between_its_ends(task_id: str) -> None:
    task = load_task(task_id)
    reference = reference_for(task)
    assert all(reference.optimum[name] - reference.floor[name] >= 0.02 for name in task.grader.weights)


def test_references_say_how_they_were_made() -> None:
    assert {"command", "commit", "seeds"} <= set(frozen_references()["provenance"])


def test_without_references_there_is_an_error_that_names_the_command() -> None:
    with pytest.raises(ReferencesNotFoundError, match="llmserve task freeze"):
        reference_for(load_task("static_workload").model_copy(update={"id": "my_own"}))


def test_the_digest_follows_the_content() -> None:
    task = load_task("static_workload")
    assert task_digest(task) == task_digest(task.model_copy())
    assert task_digest(task) != task_digest(task.model_copy(update={"steps": 100}))
