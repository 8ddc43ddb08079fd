"""What a rule remembers: the latest readings, each element of a batch with a window of its own."""

from __future__ import annotations

import numpy as np

from llmserve_env.arrays import Array

DEPTH = 40
"""Readings kept; at 30 s each, the twenty minutes that the longest window may have."""


class History:
    """A ring of the latest readings of the same shape."""

    def __init__(self, depth: int = DEPTH) -> None:
        self._depth, self._ring, self._pushed = depth, np.zeros(0), 0

    def push(self, reading: Array) -> None:
        """Remember a reading, and forget the oldest one beyond the depth."""
        if self._pushed == 0:
            self._ring = np.zeros((self._depth, *np.shape(reading)))
        self._ring[self._pushed % self._depth] = reading
        self._pushed += 1

    def _window(self, steps: Array) -> tuple[Array, Array]:
        """The readings from the latest one back, and which of them lie within each element's window."""
        held = min(self._pushed, self._depth, int(np.max(steps)))
        rows = (self._pushed - 1 - np.arange(held)) % self._depth
        values = self._ring[rows]
        ages = np.arange(held).reshape(held, *([1] * (values.ndim - 1)))
        return values, ages < np.maximum(steps, 1)

    def mean(self, steps: Array) -> Array:
        """Mean over the latest `steps` readings, or over as many as there are."""
        values, within = self._window(steps)
        return np.asarray((values * within).sum(axis=0) / within.sum(axis=0))

    def max(self, steps: Array) -> Array:
        """Largest of the latest `steps` readings."""
        values, within = self._window(steps)
        return np.asarray(np.where(within, values, -np.inf).max(axis=0))

    def min(self, steps: Array) -> Array:
        """Smallest of the latest `steps` readings."""
        values, within = self._window(steps)
        return np.asarray(np.where(within, values, np.inf).min(axis=0))
