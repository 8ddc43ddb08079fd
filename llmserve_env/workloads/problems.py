"""Validation findings as one readable `ConfigError`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from llmserve_env.errors import ConfigError


def config_error(error: ValidationError, data: Any, where: str) -> ConfigError:
    """Every finding of `error` with the path of its field below `where`, the rule and the offending value."""
    items = error.errors(include_url=False)
    places = [item["loc"] for item in items]
    return ConfigError("\n".join(_finding(item, data, where) for item in items if not _follows(item, places)))


def _follows(item: Mapping[str, Any], places: list[tuple[int | str, ...]]) -> bool:
    """Whether a list is called too short only because the items it has are wrong."""
    loc = item["loc"]
    return item["type"] == "too_short" and any(len(p) > len(loc) and p[: len(loc)] == loc for p in places)


def _finding(item: Mapping[str, Any], data: Any, where: str) -> str:
    path = where + _path(item["loc"], data)
    message = str(item["msg"]).removeprefix("Value error, ")
    value = item["input"]
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return f"{path}: {message}"
    return f"{path}: {message}; got {value!r}"


def _path(loc: Sequence[int | str], data: Any) -> str:
    """`.sources[0].rate_rps`, without the names of union members that the data does not spell as keys."""
    path, current = "", data
    for step in loc:
        if isinstance(current, Mapping) and step not in current and current.get("kind") == step:
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
        current = _below(current, step)
    return path


def _below(data: Any, step: int | str) -> Any:
    if isinstance(data, Mapping):
        return data.get(step)
    if isinstance(data, Sequence) and isinstance(step, int) and step < len(data):
        return data[step]
    return None
