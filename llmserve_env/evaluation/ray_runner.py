"""A runner on Ray: a cluster by its address, or a local one for the duration of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import ray

from llmserve_env.evaluation.runner import Item, Progress, Result, Runner


@contextmanager
def cluster(address: str | None, num_cpus: int | None = None) -> Iterator[None]:
    """Connect to Ray for the duration of the block; every node of a cluster needs this package installed."""
    options = {"address": address} if address else {"num_cpus": num_cpus, "include_dashboard": False}
    ray.init(ignore_reinit_error=True, log_to_driver=False, **options)
    try:
        yield
    finally:
        ray.shutdown()


class RayRunner(Runner):
    """Runs pieces as Ray tasks, as many at a time as the cluster has room for."""

    def _finished(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        remote = ray.remote(work)
        indices = {remote.remote(item): index for index, item in enumerate(items)}
        waiting = list(indices)
        while waiting:
            ready, waiting = ray.wait(waiting)
            for handle in ready:
                yield indices[handle], ray.get(handle)


@contextmanager
def ray_runner(
    address: str | None, num_cpus: int | None = None, progress: Progress | None = None
) -> Iterator[RayRunner]:
    """A runner for the duration of the block."""
    with cluster(address, num_cpus):
        yield RayRunner(progress)
