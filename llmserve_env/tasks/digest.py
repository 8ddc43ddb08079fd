"""The digest that ties references and constants to the content of a task."""

from __future__ import annotations

import hashlib
import json

from llmserve_env.tasks.task import Task


def task_digest(task: Task) -> str:
    """SHA-256 over everything that shapes a task's results, however its file is written."""
    text = json.dumps(task.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
