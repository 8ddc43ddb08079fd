"""Frozen references: what a random agent and the best adaptive control known reach on each task.

`scripts/freeze_references.py` computes them and writes `references.json`; nothing in it is typed by hand.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llmserve_env.errors import VersionMismatchError
from llmserve_env.graders.components import COMPONENTS
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION


@dataclass(frozen=True, slots=True)
class Reference:
    """The two ends of a task's scale, per component."""

    floor: dict[str, float]
    optimum: dict[str, float]
    is_frozen: bool

    def normalised(self, name: str, value: float) -> float:
        """Where a component lies between floor and optimum, within [0, 1]."""
        low, high = self.floor[name], self.optimum[name]
        return min(max((value - low) / (high - low), 0.0), 1.0)


PLAIN = Reference(dict.fromkeys(COMPONENTS, 0.0), dict.fromkeys(COMPONENTS, 1.0), is_frozen=False)
"""The scale of tasks without frozen references: components count as they are."""


def references_file() -> Path:
    """Where the frozen references lie."""
    return Path(str(files("llmserve_env.graders").joinpath("references.json")))


def task_digest(task: Task) -> str:
    """Digest of everything that shapes a task's figures, whatever its file looks like."""
    text = json.dumps(task.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def frozen_references() -> dict[str, Any]:
    """The references file: provenance, and an entry per task."""
    content: dict[str, Any] = json.loads(references_file().read_text(encoding="utf-8"))
    return content


def reference_for(task: Task) -> Reference:
    """The task's frozen scale; the plain one for tasks that have none. A scale of another version is refused."""
    entry = frozen_references()["tasks"].get(task.id)
    if entry is None:
        return PLAIN
    if (entry["task_version"], entry["environment_version"]) != (task.version, ENVIRONMENT_VERSION):
        raise VersionMismatchError(
            f"references of {task.id} are for version {entry['task_version']} on environment "
            f"{entry['environment_version']}; here are {task.version} and {ENVIRONMENT_VERSION}: "
            "run scripts/freeze_references.py"
        )
    return Reference(entry["floor"], entry["optimum"], is_frozen=True)
