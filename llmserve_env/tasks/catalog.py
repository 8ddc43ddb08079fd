"""The list of tasks: the files shipped with the package, and folders named in LLMSERVE_TASKS."""

from __future__ import annotations

import os
from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from llmserve_env.errors import ConfigError, UnknownTaskError
from llmserve_env.tasks.task import Task, parse_task

BENCHMARK = ("static_workload", "bursty_workload", "adversarial_multitenant")
"""The tasks of the headline table, in order of difficulty."""


def read_task(path: Path) -> Task:
    """The task in one YAML file."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a task file is a mapping of fields; got {type(data).__name__}")
    return parse_task(data, str(path))


def _task_files() -> dict[str, Path]:
    found = {
        Path(str(f)).stem: Path(str(f))
        for f in files("llmserve_env.tasks").joinpath("data").iterdir()
        if str(f).endswith(".yaml")
    }
    for folder in filter(None, os.environ.get("LLMSERVE_TASKS", "").split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(f"LLMSERVE_TASKS names {folder!r}, which is not a folder")
        found |= {path.stem: path for path in sorted(Path(folder).glob("*.yaml"))}
    return found


def task_ids() -> list[str]:
    """Benchmark tasks first, then the others by name."""
    others = sorted(set(_task_files()) - set(BENCHMARK))
    return [*BENCHMARK, *others]


@cache
def _cached_task(path: Path, _modified_ns: int) -> Task:
    return read_task(path)


def load_task(name: str | int | Path) -> Task:
    """A task by id (`bursty_workload`), number (2 or "2"), or the path of a YAML file."""
    if isinstance(name, Path) or str(name).endswith((".yaml", ".yml")):
        return read_task(Path(str(name)))
    found = _task_files()
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
