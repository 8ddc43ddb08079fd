"""Knative's Pod Autoscaler on concurrency.

Source: knative.dev/docs/serving/autoscaling/kpa-specific and knative/serving pkg/autoscaler/scaling/autoscaler.go.
Replicas = ceil(mean concurrency of the stable window / target), target = concurrency x utilisation (70 %); the
panic window is a part of the stable one (10 % of 60 s); when its replicas reach twice those that are ready, only
its count applies, and the count does not fall until a stable window has passed without panic. Rates: at most 1000 x
the ready replicas, at least half of them. Windows shorter than a decision hold one reading.
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


class Kpa(Scaler):
    """Stable and panic windows."""

    settings: ClassVar[dict[str, Setting]] = {
        "concurrency": Setting(32.0, 1.0, 256.0, "log"),
        "target_utilisation": Setting(0.7, 0.3, 1.0),
        "stable_window_s": Setting(60.0, 30.0, 600.0),
        "panic_window_share": Setting(0.1, 0.01, 1.0),
        "panic_threshold": Setting(2.0, 1.05, 4.0),
        "max_up_rate": Setting(1000.0, 1.2, 1000.0, "log"),
        "max_down_rate": Setting(2.0, 1.02, 10.0, "log"),
        "down_delay_s": Setting(0.0, 0.0, 1200.0),
    }

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._concurrency, self._decided = History(), History()
        self._calm_s: Array | float = np.inf
        self._panic_replicas: Array | float = 0.0

    def recommend(self, reading: Reading) -> Array:
        """The autoscaler's replicas."""
        values, ready = self.values, reading.serving
        self._concurrency.push(reading.waiting + reading.running)
        target = values["concurrency"] * values["target_utilisation"]
        most, least = np.ceil(values["max_up_rate"] * ready), np.floor(ready / values["max_down_rate"])
        panic_window = steps(values["stable_window_s"] * values["panic_window_share"], reading)
        stable = self._concurrency.mean(steps(values["stable_window_s"], reading))
        counts = [
            np.clip(np.ceil(x / target - 1e-9), least, most) for x in (stable, self._concurrency.mean(panic_window))
        ]
        is_over = counts[1] / ready >= values["panic_threshold"]
        self._calm_s = np.where(is_over, 0.0, self._calm_s + reading.step_s)
        panics = self._calm_s <= values["stable_window_s"]
        self._panic_replicas = np.where(panics, np.maximum(self._panic_replicas, counts[1]), 0.0)
        self._decided.push(np.where(panics, self._panic_replicas, counts[0]))
        return self._decided.max(steps(values["down_delay_s"], reading))
