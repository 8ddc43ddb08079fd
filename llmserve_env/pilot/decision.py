"""One decision of a pilot, with what it was based on and why it came out as it did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["applied", "unchanged", "recommended", "fallback"]
"""What became of a decision: applied, nothing to change, a dry run, or the last good configuration instead."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the pilot did at the end of a window."""

    window: int
    at: str
    """Wall-clock time, ISO 8601."""
    outcome: Outcome
    reason: str
    wanted: dict[str, Any]
    """What the policy asked for; empty where it was not asked or failed."""
    permitted: dict[str, Any]
    """What the bounds allow: what is applied unless this is a dry run."""
    in_force: dict[str, Any]
    """The engine's configuration while the window was served."""
    load: float
    """Replicas' worth of load; the sum over the pilots of a fleet is what the fleet needs."""
    desired_replicas: int
    reading: dict[str, Any] = field(default_factory=dict)
    """The window that it was based on; empty where the metrics were stale."""

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)
