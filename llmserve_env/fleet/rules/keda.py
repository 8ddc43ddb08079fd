"""KEDA on the length of the queue.

Source: keda.sh/docs (Prometheus scaler, ScaledObject). KEDA hands an external metric of type AverageValue to the HPA:
replicas = ceil(queue / threshold), again within the HPA's tolerance and behaviour. The cooldown of 300 s concerns
scaling to zero only, which no task allows, so the HPA's window down takes its place; minReplicaCount is a setting.
The queue is vllm:num_requests_waiting, or with the requests that run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.fleet.rules.hpa import BEHAVIOUR, Behaviour
from llmserve_env.fleet.rules.reading import Reading
from llmserve_env.fleet.rules.scaler import Scaler, totals_of
from llmserve_env.fleet.rules.setting import Setting

WAITING, IN_FLIGHT = 0.0, 2.0


class Keda(Scaler):
    """Replicas in proportion to the whole queue."""

    settings: ClassVar[dict[str, Setting]] = {
        "counts_running": Setting(0, 0, 1, "choice"),
        "threshold": Setting(5.0, 0.2, 256.0, "log"),
        "min_replicas": Setting(1, 1, 24, "whole"),
        **BEHAVIOUR,
    }

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._behaviour = Behaviour(values)

    def recommend(self, reading: Reading) -> Array:
        """The replicas that the HPA sets for KEDA's metric."""
        values = self.values
        queue = totals_of(np.where(np.round(values["counts_running"]) == 1, IN_FLIGHT, WAITING), reading)
        # An external metric compares with the replicas that are there, whether they report or not.
        ratio = queue / (values["threshold"] * np.maximum(reading.ordered, 1.0))
        wanted = np.ceil(queue / values["threshold"] - 1e-9)
        wanted = np.where(np.abs(ratio - 1.0) <= values["tolerance"], reading.ordered, wanted)
        return self._behaviour.apply(np.maximum(wanted, values["min_replicas"]), reading)
