"""Find task files and read them as plain mappings, without loading the modules that play them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from llmserve_env.errors import ConfigError
from llmserve_env.tasks import yaml_reading

TASKS_VARIABLE = "LLMSERVE_TASKS"


def data_folder() -> Path:
    """The tasks shipped with the package."""
    return Path(str(files("llmserve_env.tasks").joinpath("data")))


VERSIONED = re.compile(r"(?P<id>.+)-v(?P<version>[1-9]\d*)")
"""The name of one version of a task, and of its file."""
BENCHMARK = ("static_workload", "bursty_workload", "adversarial_multitenant")
"""The core suite: the tasks of the headline table, in order of difficulty; a task's number is its place here."""
VARIANTS = ("adversarial_spike",)
"""Variants of core tasks, asked for by name only."""


def base_id(stem: str) -> str:
    """The id of the task in a file of this name."""
    found = VERSIONED.fullmatch(stem)
    return found["id"] if found else stem


EXTENDED = tuple(sorted({base_id(path.stem) for path in data_folder().glob("*.yaml")} - {*BENCHMARK, *VARIANTS}))
"""The extended suite, made from published figures of production traces: every other task of the package."""
SUITES = {"core": BENCHMARK, "extended": EXTENDED, "variants": VARIANTS}


def suite_of(task_id: str) -> str:
    """The suite that a task belongs to; `own` for a task that is not part of the package."""
    return next((suite for suite, ids in SUITES.items() if task_id in ids), "own")


def number_of(task_id: str) -> int:
    """The short form of a core task's id (1, 2, 3); 0 for every other task."""
    return BENCHMARK.index(task_id) + 1 if task_id in BENCHMARK else 0


def is_shipped(path: Path) -> bool:
    """Whether a task file is part of the package."""
    return path.resolve().parent == data_folder().resolve()


def own_task_files() -> dict[str, Path]:
    """Path of every task in the folders named in LLMSERVE_TASKS, by its file's name."""
    found: dict[str, Path] = {}
    for folder in filter(None, os.environ.get(TASKS_VARIABLE, "").split(os.pathsep)):
        if not Path(folder).is_dir():
            raise ConfigError(f"{TASKS_VARIABLE} names {folder!r}, which is not a folder")
        # `trace fit` writes name.workload.yaml: a part of a task, not a task.
        tasks = (path for path in sorted(Path(folder).glob("*.yaml")) if not path.stem.endswith(".workload"))
        found |= {path.stem: path for path in tasks}
    return found


def references_path(task_file: Path) -> Path:
    """Where the references of the task in this file lie."""
    return task_file.with_suffix(".references.json")


def newest_versions(paths: Iterable[Path]) -> dict[str, Path]:
    """The file that each plain id means: of the versions with frozen references the newest, else the oldest."""
    versions: dict[str, dict[int, Path]] = {}
    for path in paths:
        if found := VERSIONED.fullmatch(path.stem):
            versions.setdefault(found["id"], {})[int(found["version"])] = path
    newest = {}
    for task_id, of_task in versions.items():
        frozen = [number for number, path in of_task.items() if references_path(path).is_file()]
        newest[task_id] = of_task[max(frozen) if frozen else min(of_task)]
    return newest


def task_files() -> dict[str, Path]:
    """Path of every task by name: those of the package, then those of the folders in LLMSERVE_TASKS.

    A file `static_workload-v2.yaml` is found as `static_workload-v2`, and as `static_workload` while it is the newest.
    """
    shipped = {path.stem: path for path in sorted(data_folder().glob("*.yaml"))}
    found = shipped | own_task_files()
    return newest_versions(found.values()) | found


def task_ids() -> list[str]:
    """What is listed and played by default: the core suite, then tasks from the folders in LLMSERVE_TASKS."""
    return [*BENCHMARK, *sorted(set(own_task_files()) - set(BENCHMARK))]


def known_ids() -> list[str]:
    """Everything that can be asked for by id: what is listed, then the extended suite."""
    listed = task_ids()
    return [*listed, *(name for name in (*VARIANTS, *EXTENDED) if name not in listed)]


def read_mapping(path: Path) -> dict[str, Any]:
    """The fields of one YAML file."""
    try:
        data = yaml_reading.load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_yaml_problem(path, error)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text at byte {error.start}; save it as UTF-8") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a task file is a mapping of fields; got {type(data).__name__}")
    return data


def _yaml_problem(path: Path, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    line = f":{mark.line + 1}" if mark else ""
    said = ", ".join(filter(None, (error.context, error.problem)))
    return f"{path}{line}: not valid YAML: {said}; check indentation, quotes and brackets"


def names_trace(data: Mapping[str, Any]) -> bool:
    """Whether a task's fields name a trace for their workload."""
    workload = data.get("workload")
    return isinstance(workload, Mapping) and "trace" in workload


def trace_file(data: Mapping[str, Any], task_file: Path) -> Path | None:
    """Where the trace of a task lies, as far as its fields say so."""
    source = data["workload"]["trace"] if names_trace(data) else None
    name = source.get("file") if isinstance(source, Mapping) else None
    return task_file.parent / name if isinstance(name, str) else None


def with_own_files(data: dict[str, Any], task_file: Path) -> dict[str, Any]:
    """The same fields; a profile, host or model that is named by a path is looked up relative to the task's folder."""
    deployment = data.get("deployment")
    if not isinstance(deployment, Mapping):
        return data
    named = {field: str(deployment.get(field)) for field in ("profile", "host", "model")}
    own = {
        field: str(task_file.parent / name)
        for field, name in named.items()
        if name.endswith(".json") or (field == "model" and name.startswith((".", "/")))
    }
    return {**data, "deployment": {**deployment, **own}}


class FieldLines:
    """Lines of a YAML file's fields, for messages; the file is parsed again only when one is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, place: tuple[int | str, ...]) -> int:
        """Line of the field at this path, or of the nearest field around it."""
        node = yaml_reading.compose(self._path.read_text(encoding="utf-8"))
        line = 1
        for step in place:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line


def _child(node: Any, step: int | str) -> tuple[int, Any] | None:
    """Line and node of one key or index below a node."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step].start_mark.line + 1, node.value[step]
    return None
