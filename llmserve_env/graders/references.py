"""Frozen references: the two ends of a task's score, read from `<task>.references.json` beside the task's file.

`llmserve task freeze` computes them. They hold for one content of the task only, which their digest names, and
without them there is no score.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from llmserve_env.errors import ReferencesNotFoundError, VersionMismatchError
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.files import references_path
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION


@dataclass(frozen=True, slots=True)
class Reference:
    """The two ends of a task's scale, per component."""

    floor: dict[str, float]
    optimum: dict[str, float]

    def normalised(self, name: str, value: float, zero: float | None = None) -> float:
        """Where a component lies between floor and optimum, within [0, 1]; `zero` moves both ends together."""
        low, high = self.floor[name], self.optimum[name]
        return min(max((value - (low if zero is None else zero)) / (high - low), 0.0), 1.0)


def freeze_command(task: Task) -> str:
    """The command that freezes a task's references."""
    return f"llmserve task freeze {'FILE.yaml' if task.file is None else task.typed_name}"


def has_references(task: Task) -> bool:
    """Whether the task can be graded as it is."""
    try:
        reference_for(task)
    except (ReferencesNotFoundError, VersionMismatchError):
        return False
    return True


def references_of(task: Task) -> dict[str, Any]:
    """The task's references file: both ends, the baseline, what they belong to and how they were made."""
    remedy = freeze_command(task)
    if task.file is None:
        raise ReferencesNotFoundError(
            f"{task.id} was not read from a file, so it has no frozen references to be graded on; run: {remedy}"
        )
    path = references_path(task.file)
    if not path.is_file():
        raise ReferencesNotFoundError(
            f"{task.id} has no frozen references to be graded on ({path.name} does not exist); run: {remedy}"
        )
    return _read(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read(path: Path, _changed_at_ns: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def reference_for(task: Task) -> Reference:
    """The task's frozen scale; references of another version or another content are an error."""
    found, remedy = references_of(task), freeze_command(task)
    if (found["task_version"], found["environment_version"]) != (task.version, ENVIRONMENT_VERSION):
        raise VersionMismatchError(
            f"references of {task.id} are for version {found['task_version']} on environment "
            f"{found['environment_version']}; here are {task.version} and {ENVIRONMENT_VERSION}; run: {remedy}"
        )
    if found["task_digest"] != task_digest(task):
        raise VersionMismatchError(f"{task.id} has changed since its references were frozen; run: {remedy}")
    return Reference(found["floor"], found["optimum"])
