"""A rule that sees the traffic to come: the ceiling for every rule without foresight.

It orders what the busiest of the next windows needs, so that replicas are ready when the load arrives, and keeps those
that are needed again before long, since each one that arrives breaks promises. A queue says what the forecast of needs
had wrong.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.reading import Reading, steps
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting


class Oracle(Scaler):
    """Replicas for the largest load within the time that a launch takes."""

    settings: ClassVar[dict[str, Setting]] = {
        "lead_s": Setting(240.0, 30.0, 900.0),
        "first_s": Setting(0.0, 0.0, 300.0),
        "hold_s": Setting(0.0, 0.0, 960.0),
        "share": Setting(1.2, 0.2, 2.5, "log"),
        "margin": Setting(0.5, 0.0, 3.0),
        "base_share": Setting(0.0, 0.0, 1.0),
        "queue_weight": Setting(0.0, 0.0, 2.0),
    }

    def recommend(self, reading: Reading) -> Array:
        """Whole replicas; `reading.future` has the loads to come, in replicas at full use."""
        values = self.values
        queued = values["queue_weight"] * reading.waiting / reading.serving
        ordered = self._for_busiest(reading, values["first_s"], values["lead_s"]) + queued
        needed_again = self._for_busiest(reading, np.zeros_like(values["hold_s"]), values["hold_s"])
        kept = np.minimum(reading.ready + reading.pending, needed_again)
        return np.asarray(np.ceil(np.maximum(ordered, kept) - 1e-9))

    def _for_busiest(self, reading: Reading, first_s: Array, until_s: Array) -> Array:
        """Replicas for the busiest window of those that begin within this time, not yet whole."""
        values, future = self.values, reading.future
        if future is None:
            raise ValueError("the oracle needs the traffic to come; play it with the traffic of its episode")
        ahead = np.arange(future.shape[1])[None, :]
        within = (ahead >= steps(first_s, reading) - 1.0) & (ahead < steps(until_s, reading))
        busiest = np.where(within, future, 0.0).max(axis=1, keepdims=True)
        base = values["base_share"] * reading.usual
        return np.asarray(base + values["share"] * busiest + values["margin"] * np.sqrt(busiest))
