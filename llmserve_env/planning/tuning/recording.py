"""Write the constant of a search to the file that the `tuned` agent reads, with the command that found it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.agents.constant import constant_file
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.evaluation.seeds import SEED_RANGES
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION


@dataclass(frozen=True, slots=True)
class TunedConstant:
    """The winner of a search."""

    knobs: Array
    score: float | None
    """None if the search did not maximise the score."""


def record(task: Task, found: TunedConstant, command: str, num_trials: int, num_seeds: int) -> Path:
    """Put a constant into the file that the `tuned` agent reads for this task."""
    path = constant_file(task)
    data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"tasks": {}}
    seeds = SEED_RANGES["tuning"][:num_seeds]
    entry: dict[str, Any] = {
        "knobs": mapping_from_knobs(np.round(found.knobs, 4), task.action_knobs),
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "command": command,
        "trials": num_trials,
        "seeds": f"{seeds.start}..{seeds.stop - 1}",
    }
    if found.score is not None:
        entry["score"] = round(found.score, 4)
    # Shipped tasks change their version with their content; a file of your own may change at any time.
    if task.own_file is not None:
        entry["task_digest"] = task_digest(task)
    former = data["tasks"].get(task.id)
    if former is not None and former["task_version"] < task.version:
        # The constant of an older version stays with that version.
        data["tasks"][f"{task.id}-v{former['task_version']}"] = former
    data["tasks"][task.id] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path
