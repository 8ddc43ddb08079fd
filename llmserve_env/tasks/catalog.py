"""Tasks by id, number or path: the files shipped with the package, folders named in LLMSERVE_TASKS, and any YAML."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmserve_env.errors import ConfigError, UnknownTaskError
from llmserve_env.tasks.files import (
    BENCHMARK,
    EXTENDED,
    SUITES,
    FieldLines,
    is_shipped,
    known_ids,
    names_trace,
    read_mapping,
    task_files,
    task_ids,
    trace_file,
    with_own_profile,
)
from llmserve_env.tasks.task import Task, parse_task

__all__ = ["BENCHMARK", "EXTENDED", "SUITES", "is_path", "known_ids", "load_task", "read_task", "task_ids"]


def is_path(name: str | int | Path) -> bool:
    """Whether a task is named by its file rather than by its id."""
    return isinstance(name, Path) or str(name).endswith((".yaml", ".yml"))


def read_task(path: Path) -> Task:
    """The task in one YAML file; one that names a trace gets the workload fitted to it."""
    data: Mapping[str, Any] = with_own_profile(read_mapping(path), path)
    lines = FieldLines(path)
    if names_trace(data):
        # Reading traces loads libraries that tasks without one do without.
        from llmserve_env.tasks.trace_workload import expand_trace

        data = expand_trace(data, path, lines)
    task = parse_task(data, str(path), lines)
    task.remember_file(path.resolve())
    return task


@lru_cache(maxsize=64)
def _cached_task(path: Path, _changed_at_ns: tuple[int, ...]) -> Task:
    return read_task(path)


def _current_task(path: Path) -> Task:
    """The task as its file, and the trace it names, are now."""
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such task file; give the path of a YAML file, or one of {', '.join(known_ids())}"
        )
    sources = [path, *filter(None, [trace_file(read_mapping(path), path)])]
    return _cached_task(path, tuple(source.stat().st_mtime_ns for source in sources if source.is_file()))


_named_by_path: dict[str, Path] = {}
"""Files that were loaded by path: from then on this process knows them by id, too."""


def _task_at(path: Path) -> Task:
    task = _current_task(path)
    if not is_shipped(path) and task.id in {*BENCHMARK, *EXTENDED}:
        raise ConfigError(f"{path}: id {task.id!r} is that of a shipped task; choose another one for your own")
    _named_by_path[task.id] = path.resolve()
    return task


def load_task(name: str | int | Path) -> Task:
    """A task by id (`bursty_workload`), number (2 or "2"), or the path of a YAML file."""
    if is_path(name):
        return _task_at(Path(str(name)))
    found = task_files() | _named_by_path
    text = str(name)
    if text.isdigit() and 1 <= int(text) <= len(BENCHMARK):
        text = BENCHMARK[int(text) - 1]
    if text not in found:
        raise UnknownTaskError(
            f"there is no task {name!r}; known: {', '.join(known_ids())} (or 1, 2, 3, or the path of a YAML file)"
        )
    task = _current_task(found[text])
    if task.id != found[text].stem and text not in _named_by_path:
        raise ConfigError(f"{found[text]}: id is {task.id!r}; it must be the file's name {found[text].stem!r}")
    return task
