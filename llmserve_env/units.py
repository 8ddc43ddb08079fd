"""The package's units: integer picoseconds inside the engine, milliseconds and decimal gigabytes outside it."""

from __future__ import annotations

PS_PER_NS = 10**3
PS_PER_US = 10**6
PS_PER_MS = 10**9
PS_PER_S = 10**12
NEVER_PS = 2**62
"""Later than any episode (53 days), with room to add a start time before 64 bits overflow."""

MS_PER_S = 1_000
S_PER_HOUR = 3_600
PPM = 1_000_000
"""Parts of a whole, where shares are counted as integers."""
BYTES_PER_GB = 10**9


def ms_to_ps(duration_ms: float) -> int:
    """Nearest whole picosecond."""
    return round(duration_ms * PS_PER_MS)


def s_to_ps(duration_s: float) -> int:
    """Nearest whole picosecond."""
    return round(duration_s * PS_PER_S)


def ps_to_ms(duration_ps: int) -> float:
    """Milliseconds, as observations and reports show them."""
    return duration_ps / PS_PER_MS


def ps_to_s(duration_ps: int) -> float:
    """Seconds, as rates and prices need them."""
    return duration_ps / PS_PER_S


def gb_to_bytes(size_gb: float) -> int:
    """Whole bytes of a decimal gigabyte figure, as cards are sold."""
    return round(size_gb * BYTES_PER_GB)


def bytes_to_gb(size_bytes: int) -> float:
    """Decimal gigabytes."""
    return size_bytes / BYTES_PER_GB
