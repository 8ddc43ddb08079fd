"""What a language model's answer says: its last JSON object, read as a partial action."""

from __future__ import annotations

import json
from typing import Any

from llmserve_env.agents.llm_prompt import TOOL_NAME
from llmserve_env.arrays import Array
from llmserve_env.errors import InvalidActionError
from llmserve_env.tasks.task import Task

MAX_READ = 20_000
"""Characters of an answer, from its end, in which an action is looked for: a far longer one takes seconds to read."""
_DECODER = json.JSONDecoder()


def answer_text(reply: Any) -> str | None:
    """The text of an API's reply, or the arguments of its last call of our tool; None where it has neither.

    The official client does not validate replies, so any part of one may be missing or of another type.
    """
    choices = getattr(reply, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    calls = getattr(message, "tool_calls", None)
    functions = [getattr(call, "function", None) for call in calls] if isinstance(calls, list) else []
    ours = [getattr(one, "arguments", None) for one in functions if getattr(one, "name", None) == TOOL_NAME]
    text = ours[-1] if ours else getattr(message, "content", None)
    if isinstance(text, list):
        text = "".join(str(part.get("text") or "") for part in text if isinstance(part, dict))
    return text if isinstance(text, str) else None


def last_object(text: str) -> dict[str, Any] | None:
    """The last JSON object in a text that is not part of another one; None if there is none."""
    text = text[-MAX_READ:]
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
