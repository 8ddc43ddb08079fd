"""What all rules share: settings in, replicas out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.reading import Reading
from llmserve_env.fleet.rules.setting import Setting

METRICS = ("waiting", "running", "in_flight", "kv_use")
"""What a rule may scale on, as vLLM exports it, per replica."""


class Scaler(ABC):
    """Decides how many replicas each group shall have; one object plays a batch of episodes from start to end."""

    settings: ClassVar[dict[str, Setting]]

    def __init__(self, values: Mapping[str, Array]) -> None:
        """Each value is a column with an element per episode of the batch."""
        self.values = values

    def desired(self, reading: Reading) -> Array:
        """Replicas to order, within the limits of the group."""
        return np.clip(self.recommend(reading), 1.0, reading.limit)

    @abstractmethod
    def recommend(self, reading: Reading) -> Array:
        """Replicas that the rule asks for, before limits."""


def totals_of(metric: Array, reading: Reading) -> Array:
    """Sum over the serving replicas of the metric that each episode's rule scales on."""
    choices = [
        reading.waiting,
        reading.running,
        reading.waiting + reading.running,
        reading.kv_use * reading.ready,
    ]
    picked = np.clip(metric, 0, len(choices) - 1).astype(np.int64)
    return np.choose(np.broadcast_to(picked, reading.ready.shape), choices)


def target_settings() -> dict[str, Setting]:
    """Settings of a rule that may scale on any metric: which one, and its target per replica."""
    return {
        "metric": Setting(1, 0, len(METRICS) - 1, "choice"),
        "target_requests": Setting(16.0, 0.1, 256.0, "log"),
        "target_kv_use": Setting(0.5, 0.02, 0.98),
    }


def target_of(values: Mapping[str, Array]) -> Array:
    """The target per replica of the metric that is scaled on."""
    is_kv_use = np.round(values["metric"]) == METRICS.index("kv_use")
    return np.where(is_kv_use, values["target_kv_use"], values["target_requests"])
