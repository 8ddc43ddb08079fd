"""Tuning of rules on the surrogate: settings all over their ranges, then around the best, until that gains nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.errors import ConfigError
from llmserve_env.fleet.fluid.calibration import Calibration
from llmserve_env.fleet.fluid.episodes import FluidEpisodes
from llmserve_env.fleet.fluid.need import ahead, needs
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.rules.oracle import Oracle
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.rule import RuleBatch, rule_settings
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting
from llmserve_env.fleet.task import FleetTask

TUNED = Path(__file__).parent / "data" / "tuned.json"
FUTURE_WINDOWS = 32
RANDOM_SETTINGS = 512
ROUND = 250
"""Settings of one round of local search; four rounds make the thousand after which a gain below `ENOUGH` ends it."""
ENOUGH = 0.005
SIDE_BY_SIDE = 1500
"""Episodes played side by side: more do not fit the processor's cache."""

Settings = dict[str, float]


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best settings of a rule, what they earn per episode on the surrogate, and how many were tried."""

    settings: Settings
    usd: float
    tried: int
    runners_up: tuple[Settings, ...]


def play_settings(
    task: FleetTask, worlds: Worlds, calibration: Calibration, scaler: type[Scaler], candidates: Sequence[Settings]
) -> Array:
    """Mean dollars per episode of each candidate on all worlds."""
    per_batch = max(1, SIDE_BY_SIDE // len(worlds))
    parts = [candidates[k : k + per_batch] for k in range(0, len(candidates), per_batch)]
    return np.concatenate([_play_part(task, worlds, calibration, scaler, part) for part in parts])


def _play_part(
    task: FleetTask, worlds: Worlds, calibration: Calibration, scaler: type[Scaler], candidates: Sequence[Settings]
) -> Array:
    rows = np.tile(np.arange(len(worlds)), len(candidates))
    batch = RuleBatch(scaler, task, [each for each in candidates for _ in range(len(worlds))])
    episodes = FluidEpisodes(task, worlds, calibration, rows)
    need = needs(worlds, calibration.flow) if scaler is Oracle else None
    while not episodes.is_over:
        futures = None
        if need is not None:
            futures = {role: ahead(each, rows, episodes.window, FUTURE_WINDOWS) for role, each in need.items()}
        episodes.step(batch.decide(episodes.observe(), futures))
    return np.asarray(episodes.net_usd.reshape(len(candidates), len(worlds)).mean(axis=1))


def tune(
    play: Callable[[Sequence[Settings]], Array],
    settings: Mapping[str, Setting],
    seed: int = 0,
    report: Callable[[int, float], None] = lambda tried, usd: None,
    first: Sequence[Settings] = (),
) -> Tuned:
    """Random search and then local search, until a thousand further settings gain less than half a percent."""
    rng = np.random.default_rng(seed)
    known = [{name: setting.default for name, setting in settings.items()}, *first]
    units = np.concatenate((_units(settings, known), rng.random((RANDOM_SETTINGS, len(settings)))))
    values, reach = play(_settings(settings, units)), 0.15
    history: list[float] = []
    while len(history) < 5 or history[-1] - history[-5] >= ENOUGH * abs(history[-1]):
        order = np.argsort(values)[::-1]
        fresh = _neighbours(units[order[:24]], rng, reach)
        units, values = np.concatenate((units, fresh)), np.concatenate((values, play(_settings(settings, fresh))))
        history.append(float(values.max()))
        report(len(values), history[-1])
        reach = max(reach * 0.85, 0.02)
    order = np.argsort(values)[::-1]
    found = _settings(settings, units[order[:6]])
    return Tuned(found[0], float(values[order[0]]), len(values), tuple(found[1:]))


def _neighbours(best: Array, rng: np.random.Generator, reach: float) -> Array:
    """Settings around the best ones: some moved at random, some along the difference of two others."""
    count, width = ROUND, best.shape[1]
    # The better a setting, the more neighbours it gets.
    parents = best[(len(best) * rng.random(count) ** 2).astype(np.int64)]
    moves = reach * rng.standard_normal((count, width)) * (rng.random((count, width)) < 0.35)
    one, other = best[rng.integers(len(best), size=(2, count))]
    along = 0.7 * (one - other) * (rng.random((count, width)) < 0.7)
    is_along = rng.random((count, 1)) < 0.5
    return np.asarray(np.clip(parents + np.where(is_along, along + 0.2 * moves, moves), 0.0, 1.0))


def _units(settings: Mapping[str, Setting], rows: Sequence[Settings]) -> Array:
    return np.array([[setting.unit(row[name]) for name, setting in settings.items()] for row in rows])


def _settings(settings: Mapping[str, Setting], units: Array) -> list[Settings]:
    columns = {name: setting.value(units[:, column]) for column, (name, setting) in enumerate(settings.items())}
    return [{name: float(column[row]) for name, column in columns.items()} for row in range(len(units))]


def tune_rule(
    task: FleetTask,
    worlds: Worlds,
    calibration: Calibration,
    name: str,
    report: Callable[[int, float], None] = lambda tried, usd: None,
    first: Sequence[Settings] = (),
) -> Tuned:
    """Tune the rule of this name."""
    scaler = SCALERS[name]
    settings = rule_settings(scaler, task)
    return tune(lambda some: play_settings(task, worlds, calibration, scaler, some), settings, 0, report, first)


def tuned_settings(task: FleetTask, name: str) -> Settings:
    """The shipped settings of a rule on this version of a task."""
    entry = _read(TUNED).get(task.versioned_id, {}).get(name)
    if entry is None:
        raise ConfigError(
            f"{name} has no tuned settings for {task.versioned_id}; make them with: llmserve fleet tune {task.id}"
        )
    return dict(entry["settings"])


def save_tuned(task: FleetTask, name: str, entry: Mapping[str, Any], path: Path = TUNED) -> None:
    """Keep what tuning found, beside what is known of other rules and tasks."""
    known = _read(path)
    known.setdefault(task.versioned_id, {})[name] = dict(entry)
    path.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
