"""The memory of this process: how much it occupies, and how freed memory is returned to the system."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

STATM = Path("/proc/self/statm")
MMAP_THRESHOLD, ARENA_MAX = -3, -8
"""Options of glibc's `mallopt`."""
MAPPED_BYTES = 128 * 1024
MAX_ARENAS = 2


def resident_bytes() -> int:
    """Memory that the process occupies now; 0 where the system does not tell."""
    try:
        pages = int(STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def map_large_blocks() -> None:
    """Give every block as large as an episode's arrays a mapping of its own, which is returned when it is freed.

    By default, glibc takes such blocks from its heaps once it has seen a few of them. There, small blocks that are
    still in use keep freed memory from being returned, and the process grows to twice what the episodes need.
    """
    libc = ctypes.CDLL(None)
    # Other C libraries have no such options.
    if hasattr(libc, "mallopt"):
        libc.mallopt(MMAP_THRESHOLD, MAPPED_BYTES)
        libc.mallopt(ARENA_MAX, MAX_ARENAS)


def give_back_memory() -> None:
    """Return pages that hold nothing to the system."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
