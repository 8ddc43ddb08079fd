"""AIBrix's autoscaler for LLM serving (APA).

Source: aibrix.readthedocs.io, metric-based autoscaling, and vllm-project/aibrix pkg/controller/podautoscaler. The
metric per pod, mean over a window, is compared with its target; replicas change only above 1 + the upper tolerance
or below 1 - the lower one (10 and 20 %), in proportion, at most `max_up_rate` times more and `max_down_rate` times
fewer (2 and 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.history import History
from llmserve_env.fleet.rules.reading import Reading, steps
from llmserve_env.fleet.rules.scaler import Scaler, target_of, target_settings, totals_of
from llmserve_env.fleet.rules.setting import Setting


class Apa(Scaler):
    """Replicas in proportion to a metric, outside a band around its target."""

    settings: ClassVar[dict[str, Setting]] = {
        **target_settings(),
        "up_tolerance": Setting(0.1, 0.0, 0.6),
        "down_tolerance": Setting(0.2, 0.0, 0.8),
        "max_up_rate": Setting(2.0, 1.05, 4.0),
        "max_down_rate": Setting(2.0, 1.02, 4.0),
        "window_s": Setting(60.0, 30.0, 600.0),
        "down_delay_s": Setting(0.0, 0.0, 1200.0),
    }

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._use, self._decided = History(), History()

    def recommend(self, reading: Reading) -> Array:
        """The autoscaler's replicas."""
        values, current = self.values, reading.ordered
        self._use.push(totals_of(values["metric"], reading) / reading.serving)
        ratio = self._use.mean(steps(values["window_s"], reading)) / target_of(values)
        wanted = np.ceil(current * ratio - 1e-9)
        up = np.minimum(wanted, np.ceil(values["max_up_rate"] * current))
        down = np.maximum(wanted, np.floor(current / values["max_down_rate"]))
        kept = np.where(ratio < 1.0 - values["down_tolerance"], down, current)
        self._decided.push(np.where(ratio > 1.0 + values["up_tolerance"], up, kept))
        return self._decided.max(steps(values["down_delay_s"], reading))
