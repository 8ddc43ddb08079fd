"""A server that is killed loses nothing it has acknowledged, and every session goes on bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.crashing import crash_and_resume


@pytest.mark.slow
def test_sessions_survive_a_kill_and_go_on_bit_by_bit(tmp_path: Path) -> None:
    crash_and_resume(tmp_path, sessions=6, crashes=2)
