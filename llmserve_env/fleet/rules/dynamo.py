"""NVIDIA Dynamo's planner: throughput with a predictor as a floor, load thresholds above it.

Source: docs.nvidia.com/dynamo, planner guide and planner design (1.0 to 1.2). The throughput loop predicts the
requests and tokens of the next interval (constant, or a Kalman filter of level and trend, here in its steady state)
and divides by what a profiled replica serves within its SLO; the load loop adds one replica above an upper threshold
of KV use or queue and takes one away below the lower ones. With both, the throughput's count is the load's floor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.history import History
from llmserve_env.fleet.rules.reading import Reading, steps
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting

THROUGHPUT, LOAD, BOTH = 0.0, 1.0, 2.0


class Dynamo(Scaler):
    """Predicted work over profiled capacity, and one more or fewer by load."""

    settings: ClassVar[dict[str, Setting]] = {
        "mode": Setting(BOTH, 0, 2, "choice"),
        "interval_s": Setting(180.0, 30.0, 600.0),
        "load_interval_s": Setting(30.0, 30.0, 300.0),
        "prompt_tps_per_replica": Setting(10000.0, 1000.0, 200000.0, "log"),
        "output_tps_per_replica": Setting(1500.0, 100.0, 20000.0, "log"),
        "level_gain": Setting(1.0, 0.1, 1.0),
        "trend_gain": Setting(0.0, 0.0, 0.5),
        "kv_up": Setting(0.9, 0.1, 0.98),
        "kv_down": Setting(0.5, 0.02, 0.9),
        "queue_up": Setting(2.0, 0.05, 40.0, "log"),
        "queue_down": Setting(0.2, 0.0, 5.0),
        "down_delay_s": Setting(0.0, 0.0, 1200.0),
    }

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._work, self._decided = History(), History()
        self._level: Array | None = None
        self._trend: Array = np.zeros(1)
        self._floor: Array = np.zeros(1)
        self._age = 0

    def recommend(self, reading: Reading) -> Array:
        """The planner's replicas."""
        values = self.values
        self._plan_throughput(reading)
        is_load_time = self._age % steps(values["load_interval_s"], reading) < 1.0
        self._age += 1
        queue = reading.waiting / reading.serving
        up = (reading.kv_use > values["kv_up"]) | (queue > values["queue_up"])
        down = (reading.kv_use < values["kv_down"]) & (queue < values["queue_down"])
        moved = reading.ordered + np.where(is_load_time & (reading.pending <= 0), 1.0 * up, 0.0)
        moved = moved - np.where(is_load_time & ~up, 1.0 * down, 0.0)
        mode = np.round(values["mode"])
        wanted = np.where(
            mode == THROUGHPUT, self._floor, np.where(mode == LOAD, moved, np.maximum(moved, self._floor))
        )
        self._decided.push(wanted)
        return self._decided.max(steps(values["down_delay_s"], reading))

    def _plan_throughput(self, reading: Reading) -> None:
        """Once per interval: predict the next one's work, in replicas."""
        values = self.values
        work = (
            reading.prompt_tps / values["prompt_tps_per_replica"]
            + reading.output_tps / values["output_tps_per_replica"]
        )
        self._work.push(work)
        interval = steps(values["interval_s"], reading)
        observed = self._work.mean(interval)
        if self._level is None:
            self._level, self._trend, self._floor = observed, np.zeros_like(observed), reading.ordered.copy()
        is_due = (self._age + 1) % interval < 1.0
        expected = self._level + self._trend
        level = expected + values["level_gain"] * (observed - expected)
        trend = self._trend + values["trend_gain"] * (level - self._level - self._trend)
        self._level, self._trend = np.where(is_due, level, self._level), np.where(is_due, trend, self._trend)
        planned = np.ceil(self._level + self._trend - 1e-9)
        self._floor = np.where(is_due, planned, self._floor)
