"""llm-d's workload-variant autoscaler, saturation analyser.

Source: llm-d/llm-d-workload-variant-autoscaler docs/saturation-scaling-config.md and saturation-analyzer.md. A replica
is saturated at KV use >= 0.80 or a queue >= 5, peaks over a minute. One replica more when the spare of the others
falls below 0.10 of KV or 3 places of queue, unless replicas are still on their way; one fewer when the spare would
stay above both after its load has moved to the others. The task shows means over replicas, so all count as alike.
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


class Wva(Scaler):
    """One replica up or down by the spare capacity."""

    settings: ClassVar[dict[str, Setting]] = {
        "kv_threshold": Setting(0.8, 0.05, 0.98),
        "queue_threshold": Setting(5.0, 0.2, 40.0, "log"),
        "kv_spare": Setting(0.1, 0.0, 0.5),
        "queue_spare_share": Setting(0.6, 0.05, 1.0),
        "peak_window_s": Setting(60.0, 30.0, 600.0),
        "step_replicas": Setting(1, 1, 4, "whole"),
        "down_delay_s": Setting(0.0, 0.0, 1200.0),
    }
    """`queue_spare_share` is the documented trigger of 3 as a share of the threshold of 5. The step and the delay are
    those of the HPA that carries out what the analyser publishes."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._kv_use, self._queue, self._decided = History(), History(), History()

    def recommend(self, reading: Reading) -> Array:
        """The analyser's replicas."""
        values, ready = self.values, reading.serving
        self._kv_use.push(reading.kv_use)
        self._queue.push(reading.waiting / ready)
        window = steps(values["peak_window_s"], reading)
        kv_use, queue = self._kv_use.max(window), self._queue.max(window)
        lacks = self._lacks(kv_use, queue) & (reading.pending <= 0)
        after = ready / np.maximum(ready - 1.0, 1.0)
        can_spare = ~self._lacks(kv_use * after, queue * after) & (ready > 1.0)
        wanted = reading.ordered + values["step_replicas"] * lacks - 1.0 * can_spare
        self._decided.push(wanted)
        return np.where(wanted > reading.ordered, wanted, self._decided.max(steps(values["down_delay_s"], reading)))

    def _lacks(self, kv_use: Array, queue: Array) -> Array:
        """Whether the spare of KV or of queue is below its trigger."""
        values = self.values
        short_kv = values["kv_threshold"] - kv_use < values["kv_spare"]
        spare_queue = values["queue_threshold"] * (1.0 - values["queue_spare_share"])
        return np.asarray(short_kv | (queue > spare_queue))
