"""Which draft tokens are accepted: a counter hash, or what a recorded run did."""

from __future__ import annotations

from .inputs import RecordedAcceptance
from .request import Request

SPECULATION = 2
_MASK = 2**64 - 1


def _finalise(z: int) -> int:
    z ^= z >> 30
    z = (z * 0xBF58476D1CE4E5B9) & _MASK
    z ^= z >> 27
    z = (z * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def uniform(seed: int, stream: int, request: int, position: int) -> float:
    """A number in [0, 1) that depends on these four integers alone."""
    x = seed * 0x9E3779B97F4A7C15 + stream * 0xBF58476D1CE4E5B9 + request * 0x94D049BB133111EB
    x = (x + position * 0xD6E8FEB86659FD93 + 0x2545F4914F6CDD1D) & _MASK
    return float(_finalise(_finalise(x)) >> 11) * 2.0**-53


def num_accepted(request: Request, drafts: int, seed: int, recorded: RecordedAcceptance | None) -> int:
    """Leading drafts accepted; the first draft would become output token number `emitted` (0-based)."""
    accepted = 0
    while accepted < drafts and _is_accepted(request, request.emitted + accepted, seed, recorded):
        accepted += 1
    return accepted


def _is_accepted(request: Request, position: int, seed: int, recorded: RecordedAcceptance | None) -> bool:
    if recorded is None:
        return uniform(seed, SPECULATION, request.id, position) < request.acceptance
    row = recorded[request.id]
    return position < len(row) and bool(row[position])
