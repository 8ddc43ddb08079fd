"""What a language model's answer says: its last JSON object, read as a partial action."""

from __future__ import annotations

import json
from typing import Any

from llmserve_env.arrays import Array
from llmserve_env.errors import InvalidActionError
from llmserve_env.tasks.task import Task

_DECODER = json.JSONDecoder()


def last_object(text: str) -> dict[str, Any] | None:
    """The last JSON object in a text that is not part of another one; None if there is none."""
    found, at = None, text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, or too many levels
            end = at + 1
        else:
            found = value
        at = text.find("{", end)
    return found


def parse_action(text: str | None, task: Task, current: Array) -> Array:
    """Knobs of an answer: those it names are changed, the others stay; InvalidActionError says what is wrong."""
    action = last_object(text or "")
    if action is None:
        shown = "the answer is empty" if not (text or "").strip() else "the answer has no JSON object"
        raise InvalidActionError(f'{shown}; it must end with one, such as {{"batch_cap": 64}}')
    return task.knobs_from_partial(current, action)
