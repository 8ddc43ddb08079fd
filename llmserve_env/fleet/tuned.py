"""The settings that ship for the rules of every task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmserve_env.errors import ConfigError
from llmserve_env.fleet.task import FleetTask

TUNED = Path(__file__).parent / "data" / "tuned.json"

Settings = dict[str, float]


def settings_so_far(task: FleetTask, name: str) -> Settings:
    """The settings kept for a rule on this version of a task; none before it was tuned."""
    return dict(_read(TUNED).get(task.versioned_id, {}).get(name, {}).get("settings", {}))


def tuned_settings(task: FleetTask, name: str) -> Settings:
    """The shipped settings of a rule on this version of a task."""
    settings = settings_so_far(task, name)
    if not settings:
        raise ConfigError(
            f"{name} has no tuned settings for {task.versioned_id}; make them with: llmserve fleet tune {task.id}"
        )
    return settings


def save_tuned(task: FleetTask, name: str, entry: Mapping[str, Any], path: Path = TUNED) -> None:
    """Keep what tuning found, beside what is known of other rules and tasks."""
    known = _read(path)
    known.setdefault(task.versioned_id, {})[name] = dict(entry)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def save_refined(task: FleetTask, name: str, settings: Settings, usd_per_day: float, played: int) -> None:
    """Keep the settings that the engine chose, and what they earn there."""
    entry = dict(_read(TUNED).get(task.versioned_id, {}).get(name, {}))
    entry |= {"settings": settings, "engine_usd_per_day": round(usd_per_day, 2), "played_on_engine": played}
    save_tuned(task, name, entry)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
