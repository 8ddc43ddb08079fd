"""Constants that were found, kept where the `tuned` agent looks for them, with what it takes to find them again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from llmserve_env.agents.constant import constant_file
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.evaluation.rollout import SEED_RANGES
from llmserve_env.tasks.catalog import load_task
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.files import is_shipped
from llmserve_env.version import ENVIRONMENT_VERSION


@dataclass(frozen=True, slots=True)
class TunedConstant:
    """The winner of a search."""

    knobs: Array
    score: float


def record(task_id: str, found: TunedConstant, command: str, num_trials: int, num_seeds: int) -> Path:
    """Put a constant into the file that the `tuned` agent reads for this task."""
    task = load_task(task_id)
    path = constant_file(task)
    data = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"tasks": {}}
    seeds = SEED_RANGES["tuning"][:num_seeds]
    entry = {
        "knobs": mapping_from_knobs(np.round(found.knobs, 4), task.action_knobs),
        "score": round(found.score, 4),
        "task_version": task.version,
        "environment_version": ENVIRONMENT_VERSION,
        "command": command,
        "trials": num_trials,
        "seeds": f"{seeds.start}..{seeds.stop - 1}",
    }
    # Shipped tasks change their version with their content; a file of your own may change at any time.
    if task.file is not None and not is_shipped(task.file):
        entry["task_digest"] = task_digest(task)
    data["tasks"][task.id] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return path
