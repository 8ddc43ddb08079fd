"""Tasks as clients may name them: by id or number, but never by a path on the server."""

from __future__ import annotations

from functools import lru_cache

from llmserve_env.errors import UnknownTaskError
from llmserve_env.tasks.catalog import BENCHMARK, EXTENDED, known_ids, load_task
from llmserve_env.tasks.task import Task


@lru_cache(maxsize=len(BENCHMARK) + len(EXTENDED))
def _shipped_task(task_id: str) -> Task:
    return load_task(task_id)


def known_task(name: str | int) -> Task:
    """A task of the catalogue; UnknownTaskError lists them. Files of LLMSERVE_TASKS are read again when they change."""
    text = str(name)
    if text in BENCHMARK or text in EXTENDED:
        return _shipped_task(text)
    known = known_ids()
    if text not in known and text not in {str(number) for number in range(1, len(BENCHMARK) + 1)}:
        raise UnknownTaskError(f"there is no task {text[:80]!r}; known: {', '.join(known)} (or 1 to {len(BENCHMARK)})")
    return load_task(text)
