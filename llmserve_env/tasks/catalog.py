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
    with_own_files,
)
from llmserve_env.tasks.task import Task, TaskSource, parse_task

__all__ = [
    "BENCHMARK",
    "EXTENDED",
    "SUITES",
    "is_path",
    "known_ids",
    "load_task",
    "load_version",
    "read_task",
    "task_ids",
]


def is_path(name: str | int | Path) -> bool:
    """Whether a task is named by its file rather than by its id."""
    return isinstance(name, Path) or str(name).endswith((".yaml", ".yml"))


def read_task(path: Path) -> Task:
    """The task in one YAML file; a task that names a trace gets the workload fitted to it."""
    data: Mapping[str, Any] = with_own_files(_fields(path, path.stat().st_mtime_ns), path)
    lines, section = FieldLines(path), None
    if names_trace(data):
        # Reading traces loads libraries that tasks without one do not need.
        from llmserve_env.tasks.trace_workload import expand_trace

        data, section = expand_trace(data, path, lines)
    task = parse_task(data, str(path), lines)
    task.remember_source(TaskSource(path.resolve(), section))
    return task


@lru_cache(maxsize=64)
def _fields(path: Path, _changed_at_ns: int) -> dict[str, Any]:
    return read_mapping(path)


@lru_cache(maxsize=64)
def _cached_task(path: Path, _changed_at_ns: tuple[int, ...]) -> Task:
    return read_task(path)


def _current_task(path: Path) -> Task:
    """The task as its file, and the trace it names, are now."""
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such task file; give the path of a YAML file, or one of {', '.join(known_ids())}"
        )
    trace = trace_file(_fields(path, path.stat().st_mtime_ns), path)
    sources = [path, *([trace] if trace is not None and trace.is_file() else [])]
    return _cached_task(path, tuple(source.stat().st_mtime_ns for source in sources))


def _task_at(path: Path) -> Task:
    task = _current_task(path)
    if not is_shipped(path) and task.id in {*BENCHMARK, *EXTENDED}:
        raise ConfigError(f"{path}: id {task.id!r} is that of a shipped task; choose another one for your own")
    return task


def load_task(name: str | int | Path) -> Task:
    """A task by id (`bursty_workload`), number (2 or "2"), or the path of a YAML file.

    A task that is loaded by its path is known only by the object returned: pass that on instead of its id.
    """
    if is_path(name):
        return _task_at(Path(str(name)))
    found, text = task_files(), str(name)
    if text.isdigit() and 1 <= int(text) <= len(BENCHMARK):
        text = BENCHMARK[int(text) - 1]
    if text not in found:
        raise UnknownTaskError(
            f"there is no task {name!r}; known: {', '.join(known_ids())} "
            f"(or 1 to {len(BENCHMARK)}, a version such as {BENCHMARK[0]}-v1, or the path of a YAML file)"
        )
    task = _current_task(found[text])
    if found[text].stem not in (task.id, task.versioned_id):
        raise ConfigError(
            f"{found[text]}: id is {task.id!r} and version {task.version}; "
            f"the file's name must be {task.id}.yaml or {task.versioned_id}.yaml"
        )
    return task


def load_version(task_id: str, version: int) -> Task:
    """This version of a task where the package has it, else the newest; a caller that needs the version compares it."""
    try:
        return load_task(f"{task_id}-v{version}")
    except UnknownTaskError:
        return load_task(task_id)
