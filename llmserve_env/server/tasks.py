"""Tasks as clients may name them: by id or number, but never by a path on the server."""

from __future__ import annotations

import logging
from functools import lru_cache

from llmserve_env.errors import ConfigError, UnknownTaskError
from llmserve_env.tasks.catalog import BENCHMARK, EXTENDED, known_ids, load_task, task_ids
from llmserve_env.tasks.files import VARIANTS, base_id
from llmserve_env.tasks.task import Task

log = logging.getLogger("llmserve.server")
SHIPPED = {*BENCHMARK, *EXTENDED, *VARIANTS}


@lru_cache(maxsize=4 * len(SHIPPED))
def _shipped_task(name: str) -> Task:
    return load_task(name)


def known_version(task_id: str, version: int) -> Task:
    """This version of a task of the catalogue, or the newest where there is none of this version."""
    try:
        return known_task(f"{task_id}-v{version}")
    except UnknownTaskError:
        return known_task(task_id)


def known_task(name: str | int) -> Task:
    """A task of the catalogue; UnknownTaskError lists them. Files of LLMSERVE_TASKS are read again when they change."""
    text = str(name)
    if base_id(text) in SHIPPED:
        return _shipped_task(text)
    known = known_ids()
    if text not in known and text not in {str(number) for number in range(1, len(BENCHMARK) + 1)}:
        raise UnknownTaskError(f"there is no task {text[:80]!r}; known: {', '.join(known)} (or 1 to {len(BENCHMARK)})")
    return _own_task(text)


def _own_task(task_id: str) -> Task:
    """One of the operator's own tasks; mistakes in its file are reported to the operator, not to clients."""
    try:
        return load_task(task_id)
    except ConfigError as error:
        log.error("task %s cannot be played: %s", task_id, error)
        text = f"task {task_id!r} cannot be played: its file contains a mistake; the server's log names it"
        raise ConfigError(text) from error


def listed_tasks() -> list[Task]:
    """What /tasks lists: the core suite and the operator's own tasks, except those whose files have mistakes."""
    found = []
    for task_id in task_ids():
        try:
            found.append(known_task(task_id))
        except ConfigError:
            continue
    return found
