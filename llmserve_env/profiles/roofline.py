"""Convert a timed GEMM to another memory bandwidth or weight size with a roofline that has a rounded corner.

A product's time is a launch latency plus the larger of two parts: memory (the weights, at the best streaming rate seen
on the card) and compute (proportional to tokens, at the rate seen at the largest count). A power mean joins them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SHARPNESS = 4.0
"""Exponent of the power mean: about as sharp as timed GEMM curves bend between memory- and compute-bound."""


@dataclass(frozen=True)
class Roofline:
    """Milliseconds of one product by part; `compute` has one value per timed token count."""

    latency: float
    memory: float
    compute: Floats

    @classmethod
    def of(cls, tokens: NDArray[np.int64], times: Floats, memory_ms: float) -> Roofline:
        """Split a timing into parts, given the time that its weights need at the card's streaming rate."""
        memory = min(memory_ms, float(times[0]))
        compute = tokens.astype(np.float64) * (float(times[-1]) / float(tokens[-1]))
        return cls(float(times[0]) - memory, memory, compute)

    def with_memory_slower(self, times: Floats, factor: float) -> Floats:
        """The timing on a card whose memory takes `factor` times as long: only the memory-bound share grows."""
        share = self.memory**SHARPNESS / (self.memory**SHARPNESS + self.compute**SHARPNESS)
        return np.asarray(times + (factor - 1.0) * self.memory * share, dtype=float)

    def with_smaller_weights(self, bytes_factor: float, slowdown: float) -> Floats:
        """The time with weights of `bytes_factor` times the bytes, computed `slowdown` times as slowly."""
        parts = (self.memory * bytes_factor) ** SHARPNESS + (self.compute * slowdown) ** SHARPNESS
        return np.asarray(self.latency + parts ** (1 / SHARPNESS), dtype=float)
