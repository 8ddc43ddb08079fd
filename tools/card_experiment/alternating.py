"""The steered scheduler, bypassed in every other block of iterations: what does the plug-in cost?

Runs inside vLLM's engine process. Both kinds of blocks share one engine and one batch, so nothing but the plug-in
differs between them.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

from llmserve_env.backends.real.plugin.llmserve_steering.control import write_json

BLOCK_ITERATIONS = 40
BLOCKS = "blocks.json"
# The name under which vLLM's process finds the plug-in.
_plugin: Any = import_module("llmserve_steering.scheduler")


class AlternatingScheduler(_plugin.SteeredAsyncScheduler):  # type: ignore[misc]
    """Steered in even blocks; vLLM's own asynchronous scheduler in odd ones."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._blocks: list[dict[str, Any]] = []
        self._began_at_s, self._left, self._began_with, self._is_steered = 0.0, 0, 0, True

    def schedule(self, *args: Any, **options: Any) -> Any:
        """One iteration's decisions."""
        return super().schedule(*args, **options) if self._is_steered else self._own("schedule", *args, **options)

    def update_from_output(self, *args: Any, **options: Any) -> Any:
        """The end of an iteration, which may be the end of a block."""
        if self._is_steered:
            outputs = super().update_from_output(*args, **options)
        else:
            outputs = self._own("update_from_output", *args, **options)
        self._left -= 1
        if self._left <= 0 or not self.running:
            self._turn()
        return outputs

    def _own(self, method: str, *args: Any, **options: Any) -> Any:
        return getattr(_plugin.AsyncScheduler, method)(self, *args, **options)

    def _turn(self) -> None:
        """Note the block that is over, and begin one of the other kind."""
        now_s = time.perf_counter()
        # A block in which requests came or went is not comparable with its neighbours.
        if self._left == 0 and self._began_with == len(self.running):
            iteration_ms = 1e3 * (now_s - self._began_at_s) / BLOCK_ITERATIONS
            self._blocks.append({"is_steered": self._is_steered, "iteration_ms": iteration_ms})
        # An iteration that was scheduled ahead may end after the last request has.
        if not self.running and self._blocks:
            write_json(self._folder / BLOCKS, {"blocks": self._blocks})
            self._blocks = []
        self._is_steered = not self._is_steered
        self._left, self._began_with, self._began_at_s = BLOCK_ITERATIONS, len(self.running), time.perf_counter()
