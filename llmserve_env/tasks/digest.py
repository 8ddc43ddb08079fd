"""What a task is, in one hash."""

from __future__ import annotations

import hashlib
import json

from llmserve_env.tasks.task import Task


def task_digest(task: Task) -> str:
    """Digest of everything that shapes a task's figures, whatever its file looks like."""
    text = json.dumps(task.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
