"""How kernels are compiled, and where the result is kept.

Only entry points are cached. numba does not notice when a callee in another file changes, so the cache folder is named
after the sources themselves: edited kernels never meet stale machine code.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numba import config, njit


def source_digest() -> str:
    """Digest of everything that shapes the machine code."""
    engine = Path(__file__).parent.parent
    sources = sorted(
        [
            *engine.glob("kernels/*.py"),
            engine / "layout.py",
            engine / "state.py",
            engine / "costs.py",
            engine / "knobs.py",
            engine / "deployment.py",
        ]
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def cache_folder() -> Path:
    """Compiled kernels live under NUMBA_CACHE_DIR, or the user's cache."""
    base = (
        os.environ.get("NUMBA_CACHE_DIR")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmserve_env"
    )
    return Path(base) / f"kernels-{source_digest()}"


config.CACHE_DIR = str(cache_folder())
if config.DISABLE_JIT:
    # Interpreted kernels wrap unsigned integers as compiled ones do, without a warning.
    np.seterr(over="ignore")

_INNER = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
kernel: Any = njit(forceinline=True, **_INNER)
"""On the hot path: inlined, because passing the arrays costs more than most of these functions do."""
rare_kernel: Any = njit(**_INNER)
"""Off the hot path: called, which keeps compile time down."""
entry_point: Any = njit(cache=True, nogil=True, no_cfunc_wrapper=True)


def is_compiled() -> bool:
    """Whether the entry points are in the cache, so that the first call is quick."""
    return bool(config.DISABLE_JIT) or any(cache_folder().rglob("*.nbi"))
