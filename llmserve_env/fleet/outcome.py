"""What one window came to: the same for the engine and for anything that stands in for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from llmserve_env.fleet.decision import FleetDecision


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    """One pool: its replicas by state at the end of the window, and what happened in it."""

    up: float
    booting: float
    waking: float
    draining: float
    asleep: float
    refused: float
    failed: float
    taken: float
    serving_s: float
    """Replica-seconds booting, waking, serving or draining."""
    asleep_s: float
    queue: float
    """Requests that wait at its replicas, batch jobs among them."""
    running: float
    kv_use: float
    """Share of the KV blocks in use, of the replicas that serve."""


@dataclass(frozen=True, slots=True)
class WindowOutcome:
    """One window of the whole fleet. Requests are those of clients who wait, unless batch is named."""

    judged: int
    """Requests that ended: finished, refused or given up."""
    met: int
    """Those whose promise was kept, for both times."""
    ttft_met: int
    tpot_met: int
    finished: int
    ttft_ms: float
    """Mean of the finished ones."""
    tpot_ms: float
    interactive_usd: float
    batch_usd: float
    output_tokens: float
    queue: float
    running: float
    kv_use: float
    batch_backlog: float
    batch_running: float
    batch_deadline_s: float
    batch_expired: float
    """Jobs whose deadline passed before they were admitted, so far."""
    pools: tuple[PoolOutcome, ...]


class WindowServer(Protocol):
    """Serves an episode's traffic window by window."""

    def reset(self) -> None:
        """Go back to the start of the lead."""

    def serve(self, decision: FleetDecision) -> WindowOutcome:
        """Serve the next window under this decision."""

    def snapshot(self) -> Any:
        """A copy to come back to."""

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot."""
