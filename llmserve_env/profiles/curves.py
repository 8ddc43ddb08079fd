"""Fit sums of monotone piecewise-linear curves and lines by non-negative least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CurveTerm:
    """A curve to fit: values at `knots`, zero at zero, never decreasing, linear beyond the last knot."""

    knots: tuple[int, ...]

    def columns(self, x: Floats) -> Floats:
        """One column for the first knot's value and one per rise from knot to knot; all coefficients are >= 0."""
        knots = np.asarray(self.knots, dtype=float)
        steps = (x[:, None] - knots[None, :-1]) / np.diff(knots)[None, :]
        upper = np.full(len(knots) - 1, 1.0)
        upper[-1] = np.inf
        rises = np.clip(steps, 0.0, upper[None, :])
        present = (x > 0).astype(float)[:, None]
        return np.hstack([present, rises * present])

    @property
    def size(self) -> int:
        return len(self.knots)


def values_at_knots(coefficients: Floats) -> Floats:
    """Curve values from the fitted first value and rises."""
    return np.cumsum(coefficients)


def relative_nnls(columns: Floats, target: Floats, weights: Floats | None = None, ridge: float = 1e-4) -> Floats:
    """Non-negative coefficients with the least squared relative error; a small penalty fixes columns without data."""
    row_weights = np.ones(len(target)) if weights is None else weights
    weighted = columns * (row_weights / target)[:, None]
    scale = np.maximum(np.linalg.norm(weighted, axis=0), 1e-30)
    matrix = np.vstack([weighted / scale, ridge * np.eye(columns.shape[1])])
    right = np.concatenate([row_weights, np.zeros(columns.shape[1])])
    # The triangle of a QR decomposition has the same least-squares solutions and as many rows as columns.
    q, r = np.linalg.qr(matrix)
    solution, _ = nnls(r, q.T @ right, maxiter=50 * columns.shape[1])
    return np.asarray(solution / scale, dtype=float)
