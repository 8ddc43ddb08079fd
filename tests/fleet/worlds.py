"""Short fleet tasks and their traffic, for tests."""

from __future__ import annotations

from functools import cache

import numpy as np

from llmserve_env.fleet.fluid.calibration import Calibration
from llmserve_env.fleet.fluid.service import BUSY_KNOTS, RUNNING_KNOTS, WAIT_KNOTS, Curves, Flow
from llmserve_env.fleet.series import load_series
from llmserve_env.fleet.task import FleetTask, load_fleet_task
from llmserve_env.fleet.traffic import Traffic

SERIES = "servegen_m_large"


@cache
def short_task(name: str, steps: int = 24) -> FleetTask:
    """A task of the suite whose episodes are short."""
    return load_fleet_task(name).model_copy(update={"steps": steps})


@cache
def traffic_of(task_name: str, seed: int = 1, steps: int = 24) -> Traffic:
    """Traffic of a short task in the middle of week 1."""
    return short_task(task_name, steps).traffic(load_series(SERIES), 200_000.0, seed)


def plain_calibration(is_split: bool = False) -> Calibration:
    """Constants like those of the shipped fits; tests of the mechanism need no fit."""
    kept = tuple(float(min(1.0, max(0.0, (200.0 - knot) / 120.0))) for knot in RUNNING_KNOTS)
    by_wait = tuple(float(max(0.0, 1.0 - knot / 2.0)) for knot in WAIT_KNOTS)
    curves = Curves(
        kept,
        tuple(0.0 * RUNNING_KNOTS),
        by_wait,
        tuple(np.minimum(RUNNING_KNOTS / 256.0, 1.0)),
        tuple(1e3 * WAIT_KNOTS),
        queue_s=tuple(0.05 * BUSY_KNOTS),
        prefill_running_s=tuple(0.2 * BUSY_KNOTS),
        prefill_kv_use=tuple(0.01 * BUSY_KNOTS),
    )
    return Calibration("plain", 8192, Flow(0.015, 3e-4, 5e-5, 1e-6, 150.0, is_split), curves)
