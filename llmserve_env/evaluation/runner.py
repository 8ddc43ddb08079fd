"""The one parallel map: independent pieces of work on the threads of this machine, or on a Ray cluster.

A command builds one runner and passes it down. The runner also reports progress, so nothing below it has to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Progress(Protocol):
    """Shows how far a command is."""

    def stage(self, name: str) -> None:
        """Name what is being worked on."""

    def expect(self, num_pieces: int) -> None:
        """Add pieces of work to those still to do."""

    def finish(self) -> None:
        """Mark one piece as done."""


class Silent:
    """Shows nothing."""

    def stage(self, name: str) -> None:
        """Ignored."""

    def expect(self, num_pieces: int) -> None:
        """Ignored."""

    def finish(self) -> None:
        """Ignored."""


class Runner(ABC):
    """Runs pieces of work; the results do not depend on where or in which order the pieces run."""

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress: Progress = progress or Silent()

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """`work(item)` for every item, in the order of the items."""
        self.progress.expect(len(items))
        found: dict[int, Result] = {}
        for index, result in self._finished(work, items):
            found[index] = result
            self.progress.finish()
        return [found[index] for index in range(len(items))]

    @abstractmethod
    def _finished(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Index and result of every item, as they finish."""


class Threads(Runner):
    """Runs pieces on threads of this process; the compiled core releases Python's lock."""

    def __init__(self, jobs: int = 1, progress: Progress | None = None) -> None:
        super().__init__(progress)
        self.jobs = max(jobs, 1)

    def _finished(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        with ThreadPoolExecutor(max_workers=self.jobs) as pool:
            indices = {pool.submit(work, item): index for index, item in enumerate(items)}
            try:
                for future in as_completed(indices):
                    if future.exception() is not None:
                        break
                    yield indices[future], future.result()
            finally:
                # After an error, pieces that have not begun are dropped; the pool still waits for those that have.
                for future in indices:
                    future.cancel()
            wait(indices)
            for future in indices:
                # Of several errors, that of the first piece: which thread was faster does not matter.
                if not future.cancelled():
                    future.result()
