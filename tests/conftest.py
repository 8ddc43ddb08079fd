"""Settings shared by all tests: property tests are repeatable, and fewer where the core runs as plain Python."""

from __future__ import annotations

import os

from hypothesis import settings

# The first call of a kernel compiles it, so the time of one example says nothing.
settings.register_profile("compiled", deadline=None, derandomize=True)
settings.register_profile("plain", settings.get_profile("compiled"), max_examples=20)
settings.load_profile("plain" if os.environ.get("NUMBA_DISABLE_JIT") == "1" else "compiled")
