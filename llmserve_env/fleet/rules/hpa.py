"""Kubernetes' Horizontal Pod Autoscaler on a metric of the pods.

Source: kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale (algorithm details, behaviour).
Replicas = ceil(replicas x metric / target); no change within a tolerance of 10 %; pods without metrics count as idle
on the way up and as on target on the way down; the smallest recommendation of the window up and the largest of the
window down (0 and 300 s) apply; at most 100 % or 4 pods more, whichever is more, and 100 % fewer per period. A decision
of the task takes the place of the controller's sync and of the policies' period.
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

BEHAVIOUR = {
    "tolerance": Setting(0.1, 0.0, 0.3),
    "up_window_s": Setting(0.0, 0.0, 300.0),
    "down_window_s": Setting(300.0, 0.0, 1200.0),
    "up_share": Setting(1.0, 0.1, 3.0),
    "up_replicas": Setting(4, 1, 16, "whole"),
    "down_share": Setting(1.0, 0.05, 1.0),
}


def ratio_replicas(total: Array, target: Array, tolerance: Array, reading: Reading) -> Array:
    """The recommendation of a metric per pod, from its sum over the pods that report it."""
    known = reading.serving
    ratio = total / (known * target)
    pods = reading.ready + reading.pending
    # A pod without metrics counts as idle on the way up, and as on target on the way down.
    complete = np.where(ratio > 1.0, total, total + reading.pending * target)
    rebalanced = complete / (np.maximum(pods, 1.0) * target)
    is_close = np.abs(rebalanced - 1.0) <= tolerance
    turned = ((ratio > 1.0) & (rebalanced < 1.0)) | ((ratio < 1.0) & (rebalanced > 1.0))
    wanted = np.ceil(rebalanced * np.maximum(pods, 1.0) - 1e-9)
    return np.where(is_close | turned, reading.ordered, wanted)


class Behaviour:
    """Stabilisation windows and rate policies, as in the specification's `behavior`."""

    def __init__(self, values: Mapping[str, Array]) -> None:
        self._values, self._recommended = values, History()

    def apply(self, wanted: Array, reading: Reading) -> Array:
        """The replicas that the controller sets, given what its metrics ask for."""
        values, current = self._values, reading.ordered
        self._recommended.push(wanted)
        lowest = self._recommended.min(steps(values["up_window_s"], reading))
        highest = self._recommended.max(steps(values["down_window_s"], reading))
        stable = np.minimum(np.maximum(current, lowest), np.maximum(highest, lowest))
        most = np.maximum(np.ceil(current * (1.0 + values["up_share"])), current + values["up_replicas"])
        least = np.floor(current * (1.0 - values["down_share"]))
        return np.clip(stable, least, most)


class Hpa(Scaler):
    """Replicas in proportion to a metric."""

    settings: ClassVar[dict[str, Setting]] = target_settings() | BEHAVIOUR

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__(values)
        self._behaviour = Behaviour(values)

    def recommend(self, reading: Reading) -> Array:
        """The controller's replicas."""
        total = totals_of(self.values["metric"], reading)
        wanted = ratio_replicas(total, target_of(self.values), self.values["tolerance"], reading)
        return self._behaviour.apply(wanted, reading)
