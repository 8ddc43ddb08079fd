"""Keep answers beside the task they belong to, and use them again while nothing they depend on has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.runner import Runner
from llmserve_env.planning.answer.answer import FORMAT, Answer
from llmserve_env.planning.answer.configurations import active_tiers, configurations
from llmserve_env.planning.answer.protocol import Protocol
from llmserve_env.planning.answer.search import find_answer
from llmserve_env.planning.tuning.recording import TunedConstant, record
from llmserve_env.tasks.digest import task_digest
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION


def answer_file(task: Task) -> Path | None:
    """Where the answers of a task of your own lie; a shipped task has no such file."""
    return None if task.own_file is None else task.own_file.with_suffix(".answer.json")


def answer_for(task: Task, protocol: Protocol | None = None, runner: Runner | None = None) -> Answer:
    """The stored answer to the same question about the same task, or a new one, which is then stored."""
    protocol = protocol or Protocol()
    path, asked = answer_file(task), _asked(task, protocol)
    stored = [] if path is None else _read(path)
    for entry in stored:
        if entry["asked"] == asked:
            return Answer.model_validate(entry["answer"])
    found = find_answer(task, protocol, runner)
    if path is not None:
        # Answers about an older content or version of the task are dropped.
        current = [entry for entry in stored if {**entry["asked"], "protocol": asked["protocol"]} == asked]
        current.append({"asked": asked, "answer": json.loads(found.model_dump_json())})
        path.write_text(json.dumps({"answers": current}, indent=1) + "\n", encoding="utf-8")
        _record_constant(task, found)
    return found


def _asked(task: Task, protocol: Protocol) -> dict[str, Any]:
    """Everything an answer depends on."""
    return {
        "format": FORMAT,
        "task_digest": task_digest(task),
        "environment_version": ENVIRONMENT_VERSION,
        "package_version": PACKAGE_VERSION,
        "protocol": protocol.as_dict(),
    }


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["answers"]
        for entry in entries:
            if entry["asked"]["format"] == FORMAT:
                Answer.model_validate(entry["answer"])
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        raise ConfigError(f"{path}: not a file of stored answers; delete it to have them found again") from error
    return entries


def _record_constant(task: Task, found: Answer) -> None:
    """The best configuration of the task's own fleet, for the `tuned` agent."""
    knobs = task.knobs_from_mapping(found.own.knobs)
    tiers, num_seeds = active_tiers(task), int(found.protocol["num_search_seeds"])
    tried = sum(len(configurations(task, tier)) for tier in tiers)
    record(task, TunedConstant(knobs, None), f"llmserve tune {task.typed_name}", tried, num_seeds)
