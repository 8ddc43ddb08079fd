"""The core survives random actions with every array access checked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = os.environ.get("LLMSERVE_FUZZ_SECONDS", "20")
FIRST_SEED = os.environ.get("LLMSERVE_FUZZ_SEED", "10000")
MECHANISMS = (
    "finished",
    "rejected",
    "abandoned",
    "preemptions",
    "ooms",
    "reloads",
    "cached_tokens",
    "drafted_tokens",
)


@pytest.mark.slow
@pytest.mark.skipif(
    os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"), reason="plain Python checks every access anyway"
)
def test_random_actions_break_no_bound_and_no_law() -> None:
    """In a process of its own, because numba reads the setting when it is imported."""
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run(
        [sys.executable, "-m", "tests.engine.fuzzing", SECONDS, FIRST_SEED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr[-4000:]
    seen = json.loads(run.stdout)
    print(f"{seen['cases']} cases, {seen['windows']} windows, {seen['iterations']} iterations; {seen}")
    assert {name for name in MECHANISMS if not seen[name]} == set()
    assert seen["largest_batch"] == 512
