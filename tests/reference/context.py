"""What the replicas of one deployment share."""

from __future__ import annotations

from dataclasses import dataclass, field

from .inputs import Deployment, IterationCallback, Knobs, RecordedAcceptance
from .request import Request


@dataclass(slots=True)
class Counters:
    """Totals since the start of the episode."""

    finished: int = 0
    rejected: int = 0
    abandoned: int = 0
    preemptions: int = 0
    ooms: int = 0
    output_tokens: int = 0
    prefill_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    iterations: int = 0
    busy_ps: int = 0


@dataclass(slots=True)
class Context:
    """The deployment, the knobs of the window, the totals, and the hand-offs on their way."""

    deployment: Deployment
    seed: int
    recorded_acceptance: RecordedAcceptance | None
    on_iteration: IterationCallback | None
    knobs: Knobs
    counters: Counters = field(default_factory=Counters)
    handoffs: list[tuple[int, int, Request]] = field(default_factory=list)
    """(time, request id, request)."""
