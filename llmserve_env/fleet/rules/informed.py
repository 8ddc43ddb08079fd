"""A rule that reads every signal that the task shows: rates, tokens, session starts and open sessions.

It is what an operator writes who knows that today's session starts are the next minutes' requests: a weighted sum of
the signals, each relative to its usual value, plus a margin that grows with the square root of the load, a trend and
the queue; replicas go as soon as the window down has passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.history import History
from llmserve_env.fleet.rules.reading import SIGNALS, Reading, steps
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting


class Informed(Scaler):
    """Replicas in proportion to a weighted sum of signals."""

    settings: ClassVar[dict[str, Setting]] = {
        **{f"weight_{name}": Setting(1.0 if name == "request_rps" else 0.0, -0.5, 2.0) for name in SIGNALS},
        "starts_window_s": Setting(120.0, 30.0, 600.0),
        "rate_window_s": Setting(60.0, 30.0, 300.0),
        "base_share": Setting(0.0, -0.5, 1.0),
        "margin": Setting(0.5, 0.0, 3.0),
        "trend": Setting(0.0, 0.0, 4.0),
        "queue_weight": Setting(0.0, 0.0, 2.0),
        "down_window_s": Setting(120.0, 0.0, 1200.0),
    }

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._signals = {name: History() for name in SIGNALS}
        self._needs = History()
        self._wanted = History()

    def recommend(self, reading: Reading) -> Array:
        """Whole replicas, as many as the window down has asked for."""
        return np.ceil(self.held_level(reading) - 1e-9)

    def held_level(self, reading: Reading) -> Array:
        """The most that the signals have asked for within the window down, not yet whole."""
        self._wanted.push(self.level(reading))
        return self._wanted.max(steps(self.values["down_window_s"], reading))

    def level(self, reading: Reading) -> Array:
        """The replicas that the signals ask for now, not yet whole."""
        values, share = self.values, self.values["base_share"]
        for name in SIGNALS:
            self._signals[name].push(reading.signals[name])
            window = values["starts_window_s" if name == "session_start_rps" else "rate_window_s"]
            share = share + values[f"weight_{name}"] * self._signals[name].mean(steps(window, reading))
        need = np.maximum(reading.usual * share, 0.0)
        self._needs.push(need)
        slope = need - self._needs.mean(np.full_like(need, 10.0))
        queued = values["queue_weight"] * reading.waiting / reading.serving
        return np.asarray(need + values["margin"] * np.sqrt(need) + values["trend"] * slope + queued)
