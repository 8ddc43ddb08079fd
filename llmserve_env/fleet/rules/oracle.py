"""A rule that sees the traffic to come: the ceiling for every rule without foresight.

It orders what the busiest of the next windows needs, so that replicas are ready when the load arrives.
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
        "share": Setting(1.2, 0.2, 2.5, "log"),
        "margin": Setting(0.5, 0.0, 3.0),
    }

    def recommend(self, reading: Reading) -> Array:
        """Whole replicas; `reading.future` has the loads to come, in replicas at full use."""
        values, future = self.values, reading.future
        if future is None:
            raise ValueError("the oracle needs the traffic to come; play it with the traffic of its episode")
        ahead = np.arange(future.shape[1])[None, :]
        within = (ahead >= steps(values["first_s"], reading) - 1.0) & (ahead < steps(values["lead_s"], reading))
        busiest = np.where(within, future, 0.0).max(axis=1, keepdims=True)
        return np.asarray(np.ceil(values["share"] * busiest + values["margin"] * np.sqrt(busiest)))
