"""The same number of replicas all the time."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.reading import Reading
from llmserve_env.fleet.rules.scaler import Scaler
from llmserve_env.fleet.rules.setting import Setting


class Constant(Scaler):
    """As many replicas as its setting says, relative to the task's usual number."""

    settings: ClassVar[dict[str, Setting]] = {"share": Setting(1.0, 0.3, 3.0)}

    def recommend(self, reading: Reading) -> Array:
        """The constant."""
        return np.round(np.broadcast_to(self.values["share"] * reading.usual, reading.ready.shape))
