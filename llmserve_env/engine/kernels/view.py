"""One environment's slice of the engine's memory, as the kernels pass it around."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from llmserve_env.arrays import Array


class Sim(NamedTuple):
    """Records and arrays of a single environment; `layout.py` documents their fields.

    Kept narrow, because it travels by value between compiled functions. numba infers the types again from the arrays
    that `advance` is called with.
    """

    deployment: np.record
    """DEPLOYMENT_DTYPE; only read."""
    environment: np.record
    """ENVIRONMENT_DTYPE."""
    window: np.record
    """WINDOW_DTYPE."""
    replicas: Array
    """[replica] of REPLICA_DTYPE."""
    requests: Array
    """[request] of REQUEST_DTYPE; only read."""
    progress: Array
    """[request] of PROGRESS_DTYPE."""
    entries: Array
    """[replica, entry] of ENTRY_DTYPE: the prefix cache; empty without it."""
    buckets: Array
    """[replica, bucket]: the first entry of each hash chain, or -1; empty without prefix caching."""
    block_table: Array
    """[replica, table row, position]: entries of the shared blocks that a running request holds."""
    pools: Array
    """[pool] of POOL_DTYPE; empty without a fleet that changes."""
    launch_delays: Array
    """[pool, launch]: how long each launch takes, negative where it fails; only read."""
    capacity: Array
    """[change] of CAPACITY_DTYPE; only read."""
    log: Array
    """[row] of LOG_DTYPE; empty unless a log is wanted."""
    recorded: Array
    """[request, output position]: 1 where a recorded run accepted the draft; empty to draw the verdicts."""
