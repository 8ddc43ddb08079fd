"""Readings for rules, with everything calm unless a test says otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.fleet.rules.reading import SIGNALS, Reading
from llmserve_env.fleet.rules.registry import SCALERS
from llmserve_env.fleet.rules.scaler import METRICS, Scaler
from llmserve_env.fleet.rules.setting import stacked

WAITING, RUNNING, IN_FLIGHT, KV_USE = (float(METRICS.index(name)) for name in METRICS)


def reading(replicas: float, **figures: Any) -> Reading:
    """A reading of one episode whose fleet has so many replicas, all ordered and ready."""
    columns = {"ordered": replicas, "ready": replicas, "pending": 0.0, "limit": 100.0}
    columns |= {"waiting": 0.0, "running": 0.0, "kv_use": 0.0, "prompt_tps": 0.0, "output_tps": 0.0}
    signals = {name: np.full((1, 1), float(figures.pop(name, 0.0))) for name in SIGNALS if name not in columns}
    columns |= figures
    signals |= {name: np.full((1, 1), float(columns[name])) for name in SIGNALS if name in columns}
    return Reading(
        step_s=30.0,
        usual=10.0,
        signals=signals,
        **{name: np.full((1, 1), float(value)) for name, value in columns.items()},
    )


def rule(name: str, **settings: float) -> Scaler:
    """A rule with its documented defaults, except for what is given."""
    scaler = SCALERS[name]
    return scaler(stacked(scaler.settings, [settings]))


def asks(scaler: Scaler, seen: Reading) -> int:
    """The replicas that a rule asks for after a reading."""
    return int(scaler.desired(seen)[0, 0])
