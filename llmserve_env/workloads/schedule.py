"""What is known in advance about the traffic of a seed: rates, bursts and phases of every second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.workloads.arrivals import WARMUP_S
from llmserve_env.workloads.rates import rate_curve
from llmserve_env.workloads.sessions import request_rate
from llmserve_env.workloads.spec import WorkloadSpec
from llmserve_env.workloads.streams import SourceStreams

Phase = Literal["steady", "warmup", "burst", "cooldown"]
PHASES: tuple[Phase, ...] = get_args(Phase)
COOLDOWN_S = 10.0


@dataclass(frozen=True, slots=True)
class Burst:
    """A period of raised rate of one source: a burst, a spike, or the ON period of an ON/OFF process."""

    source: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TrafficSchedule:
    """Expected traffic of one seed, one row per second; second i lasts from i to i + 1."""

    rate_rps: Array
    """Expected requests in each second, shape (seconds, sources)."""
    is_burst: Array
    """Whether any source bursts during part of the second."""
    phase: tuple[Phase, ...]
    """warmup in the first 10 s, else burst, else cooldown for 10 s after a burst, else steady."""
    bursts: tuple[Burst, ...]
    """Ordered by source, then by start."""

    @property
    def total_rps(self) -> Array:
        """Expected requests in each second, all sources together."""
        total: Array = self.rate_rps.sum(axis=1)
        return total


def schedule(spec: WorkloadSpec, seed: int) -> TrafficSchedule:
    """Expected traffic of `sample(spec, seed)`, with the bursts that its arrivals follow."""
    rates, bursts = [], []
    for index, source in enumerate(spec.sources):
        curve = rate_curve(source.arrivals, spec.horizon_s, spec.rate_scale, SourceStreams(seed, index))
        rates.append(
            request_rate(source.sessions, curve, spec.horizon_s)
            if source.sessions
            else curve.per_second(0, spec.horizon_s)
        )
        bursts += [Burst(index, float(start_s), float(end_s)) for start_s, end_s in curve.bursts_s]
    spans = np.array([(burst.start_s, burst.end_s) for burst in bursts]).reshape(-1, 2)
    is_burst = _touched(spans, spec.horizon_s)
    cooling = _touched(np.column_stack((spans[:, 1], spans[:, 1] + COOLDOWN_S)), spec.horizon_s)
    warming = np.arange(spec.horizon_s) < WARMUP_S
    code = np.select([warming, is_burst, cooling], [1, 2, 3], 0)
    phases = tuple(PHASES[i] for i in code.tolist())
    return TrafficSchedule(np.column_stack(rates), is_burst, phases, tuple(bursts))


def _touched(spans: Array, horizon_s: int) -> Array:
    """Seconds that a span covers at least partly."""
    second = np.arange(horizon_s)[:, None]
    touched: Array = np.any((spans[:, 0] < second + 1) & (spans[:, 1] > second), axis=1)
    return touched
