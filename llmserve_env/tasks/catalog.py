"""The list of tasks: the files shipped with the package, and folders named in LLMSERVE_TASKS."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from llmserve_env.errors import ConfigError, UnknownTaskError
from llmserve_env.tasks.files import BENCHMARK, read_mapping, task_files, task_ids
from llmserve_env.tasks.task import Task, parse_task

__all__ = ["BENCHMARK", "load_task", "read_task", "task_ids"]


def read_task(path: Path) -> Task:
    """The task in one YAML file."""
    return parse_task(read_mapping(path), str(path))


@cache
def _cached_task(path: Path, _modified_ns: int) -> Task:
    return read_task(path)


def load_task(name: str | int | Path) -> Task:
    """A task by id (`bursty_workload`), number (2 or "2"), or the path of a YAML file."""
    if isinstance(name, Path) or str(name).endswith((".yaml", ".yml")):
        return read_task(Path(str(name)))
    found = task_files()
    text = str(name)
    if text.isdigit() and 1 <= int(text) <= len(BENCHMARK):
        text = BENCHMARK[int(text) - 1]
    if text not in found:
        raise UnknownTaskError(
            f"there is no task {name!r}; known: {', '.join(task_ids())} (or 1, 2, 3, or the path of a YAML file)"
        )
    path = found[text]
    task = _cached_task(path, path.stat().st_mtime_ns)
    if task.id != path.stem:
        raise ConfigError(f"{path}: id is {task.id!r}; it must be the file's name {path.stem!r}")
    return task
