"""One environment's slice of the engine's memory, as the kernels pass it around."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sim(NamedTuple):
    """Records and arrays of a single environment. Kept narrow: it travels by value between compiled functions."""

    deployment: Any
    environment: Any
    window: Any
    replicas: Any
    requests: Any
    progress: Any
    cache: Any
    block_table: Any
    log: Any
    recorded: Any
