"""Connecting to Ray: a cluster by its address, or a local one for the time of a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import ray


@contextmanager
def cluster(address: str | None, num_cpus: int | None = None) -> Iterator[None]:
    """Ray for the time of the block; every node of a cluster needs this package installed."""
    options = {"address": address} if address else {"num_cpus": num_cpus, "include_dashboard": False}
    ray.init(ignore_reinit_error=True, log_to_driver=False, **options)
    try:
        yield
    finally:
        ray.shutdown()
