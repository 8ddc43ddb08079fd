"""Independent pieces of work, side by side: on the threads of this machine, or wherever a `Runner` takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int], object]


class Runner(Protocol):
    """Runs pieces of work; results come in the order of the pieces, whoever finishes first."""

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Result]:
        """`work` of every item; `progress` is told of each one that is done."""


class Threads:
    """Threads of this process: the compiled core runs outside Python's lock."""

    def __init__(self, jobs: int = 1) -> None:
        self.jobs = max(jobs, 1)

    def map(
        self, work: Callable[[Item], Result], items: Sequence[Item], progress: Progress | None = None
    ) -> list[Result]:
        """All items, `jobs` at a time."""

        def run(item: Item) -> Result:
            result = work(item)
            if progress:
                progress(1)
            return result

        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            return list(pool.map(run, items))
