"""A `Runner` on a Ray cluster: the same pieces, the same results, more machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import ray

from llmserve_env.evaluation.parallel import Item, Progress, Result
from llmserve_env.evaluation.ray_cluster import cluster


class RayRunner:
    """Pieces of work as Ray tasks; tasks, knobs and seeds travel, figures come back."""

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Result]:
        """All items, as many at a time as the cluster has room for."""
        remote = ray.remote(work)
        handles = [remote.remote(item) for item in items]
        results: list[Result] = []
        for handle in handles:
            results.append(ray.get(handle))
            if progress:
                progress(1)
        return results


@contextmanager
def ray_runner(address: str | None, num_cpus: int | None = None) -> Iterator[RayRunner]:
    """A runner for the time of the block."""
    with cluster(address, num_cpus):
        yield RayRunner()
