"""Frozen references: what a random agent and the best control known reach on each task.

Those of the core suite lie in `references.json` (`tools/freeze_references.py`), those of any other task beside its
file in `<task>.references.json` (`llmserve task freeze`). Nothing in them is typed by hand, and without them there is
no score.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llmserve_env.errors import ReferencesNotFoundError, VersionMismatchError
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.files import is_shipped
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION

__all__ = [
    "Reference",
    "freeze_command",
    "frozen_references",
    "has_references",
    "reference_for",
    "references_beside",
    "references_file",
    "task_digest",
]


@dataclass(frozen=True, slots=True)
class Reference:
    """The two ends of a task's scale, per component."""

    floor: dict[str, float]
    optimum: dict[str, float]

    def normalised(self, name: str, value: float) -> float:
        """Where a component lies between floor and optimum, within [0, 1]."""
        low, high = self.floor[name], self.optimum[name]
        return min(max((value - low) / (high - low), 0.0), 1.0)


def references_file() -> Path:
    """Where the frozen references of the core suite lie."""
    return Path(str(files("llmserve_env.graders").joinpath("references.json")))


def references_beside(task_file: Path) -> Path:
    """Where the references of any other task lie."""
    return task_file.with_suffix(".references.json")


@cache
def frozen_references() -> dict[str, Any]:
    """The references file of the core suite: provenance, and an entry per task."""
    content: dict[str, Any] = json.loads(references_file().read_text(encoding="utf-8"))
    return content


@cache
def _read_beside(path: Path, _changed_at_ns: int) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def freeze_command(task: Task) -> str:
    """What to type to freeze a task's references."""
    if task.file is None:
        return "llmserve task freeze FILE.yaml"
    return f"llmserve task freeze {task.id if is_shipped(task.file) else task.file.name}"


def has_references(task: Task) -> bool:
    """Whether the task can be graded as it is."""
    try:
        reference_for(task)
    except (ReferencesNotFoundError, VersionMismatchError):
        return False
    return True


def reference_for(task: Task) -> Reference:
    """The task's frozen scale. None, or one of another version or content, is an error: a score is never a guess."""
    entry = frozen_references()["tasks"].get(task.id) if task.file is None or is_shipped(task.file) else None
    remedy = "python -m tools.freeze_references"
    if entry is None:
        remedy = freeze_command(task)
        path = None if task.file is None else references_beside(task.file)
        if path is None or not path.is_file():
            where = "" if path is None else f" ({path.name} does not exist)"
            raise ReferencesNotFoundError(f"{task.id} has no frozen references to be graded on{where}; run: {remedy}")
        entry = _read_beside(path, path.stat().st_mtime_ns)
        if entry["task_digest"] != task_digest(task):
            raise VersionMismatchError(f"{task.id} has changed since its references were frozen; run: {remedy}")
    if (entry["task_version"], entry["environment_version"]) != (task.version, ENVIRONMENT_VERSION):
        raise VersionMismatchError(
            f"references of {task.id} are for version {entry['task_version']} on environment "
            f"{entry['environment_version']}; here are {task.version} and {ENVIRONMENT_VERSION}; run: {remedy}"
        )
    return Reference(entry["floor"], entry["optimum"])
