"""What an operator decides for the next window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetDecision:
    """Desired replicas of each pool, and how the fleet uses them, until the next decision."""

    serving: tuple[int, ...]
    """Replicas that shall serve, per pool in the task's order."""
    asleep: tuple[int, ...]
    """Replicas that shall sleep, per pool."""
    batch_share: float = 0.0
    """Share of the task's highest rate at which batch jobs are admitted."""
    token_budget: int | None = None
    """Most tokens of an iteration; None for what the engines are started with."""
