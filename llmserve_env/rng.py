"""Named random streams: one seed, isolated draws.

A draw depends on (seed, stream, counters) and on nothing that happened before, so traffic never depends on the actions
taken and adding a stream disturbs no other.
"""

from __future__ import annotations

import numpy as np

# Values are part of the reproducibility contract: append, never renumber.
ARRIVALS_STREAM, LENGTHS_STREAM, SPECULATION_STREAM, MIX_STREAM, JITTER_STREAM, POLICY_STREAM = range(6)


def stream(seed: int, name: int) -> np.random.Generator:
    """An independent generator for this seed and purpose."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(seed, spawn_key=(name,))))
