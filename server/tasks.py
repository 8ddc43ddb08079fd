"""Tasks as clients may name them: by id or number, never by a path of this machine."""

from __future__ import annotations

from llmserve_env.errors import UnknownTaskError
from llmserve_env.tasks.catalog import BENCHMARK, known_ids, load_task
from llmserve_env.tasks.task import Task


def known_task(name: str | int) -> Task:
    """A task of the catalogue; UnknownTaskError lists them."""
    known = known_ids()
    text = str(name)
    if text not in known and text not in {str(number) for number in range(1, len(BENCHMARK) + 1)}:
        raise UnknownTaskError(f"there is no task {text[:80]!r}; known: {', '.join(known)} (or 1, 2, 3)")
    return load_task(text)
