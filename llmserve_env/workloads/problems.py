"""Validation findings as one readable `ConfigError`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from llmserve_env.errors import ConfigError

Place = tuple[int | str, ...]
LineOf = Callable[[Place], int]
"""Line of the field at a path of keys and indices, or of the nearest enclosing field."""


def config_error(
    error: ValidationError, data: Any, where: str, line_of: LineOf | None = None, below: Place = ()
) -> ConfigError:
    """Every finding of `error`: the path of its field below `where` (with its line, if known), the rule, the value.

    `below` is where `data` lies within what `where` names.
    """
    items = error.errors(include_url=False)
    places = [item["loc"] for item in items]
    kept = [item for item in items if not _follows(item, places)]
    return ConfigError("\n".join(_finding(item, (*below, *_steps(item["loc"], data)), where, line_of) for item in kept))


def _follows(item: Mapping[str, Any], places: list[tuple[int | str, ...]]) -> bool:
    """Whether a list is reported as too short only because its items are invalid."""
    loc = item["loc"]
    return item["type"] == "too_short" and any(len(p) > len(loc) and p[: len(loc)] == loc for p in places)


def _finding(item: Mapping[str, Any], steps: Place, where: str, line_of: LineOf | None) -> str:
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    if line_of is None:
        place = where + path
    else:
        place = f"{where}:{line_of(steps)}" + (f": {path.removeprefix('.')}" if path else "")
    message = str(item["msg"]).removeprefix("Value error, ")
    value = item["input"]
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return f"{place}: {message}"
    return f"{place}: {message}; got {value!r}"


def _steps(loc: Sequence[int | str], data: Any) -> Place:
    """Keys and indices of the data, without the names of union members that the data does not spell as keys."""
    steps: list[int | str] = []
    current = data
    for step in loc:
        if isinstance(current, Mapping) and step not in current and current.get("kind") == step:
            continue
        steps.append(step)
        current = _below(current, step)
    return tuple(steps)


def _below(data: Any, step: int | str) -> Any:
    if isinstance(data, Mapping):
        return data.get(step)
    if isinstance(data, Sequence) and isinstance(step, int) and step < len(data):
        return data[step]
    return None
