"""The counter-based uniform draw, compiled."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel


@kernel
def uniform(seed, stream, a, b):
    """A uniform draw in [0, 1); arguments are uint64."""
    z = seed * np.uint64(0x9E3779B97F4A7C15) + stream * np.uint64(0xBF58476D1CE4E5B9)
    z += a * np.uint64(0x94D049BB133111EB) + b * np.uint64(0xD6E8FEB86659FD93) + np.uint64(0x2545F4914F6CDD1D)
    for _ in range(2):
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * 2.0**-53
