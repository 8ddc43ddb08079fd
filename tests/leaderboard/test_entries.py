"""The committed leaderboard: every entry verifies, and the rendered pages are those of the entries."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmserve_env.cli.main import main
from llmserve_env.leaderboard.submission import read_submission
from llmserve_env.leaderboard.verifying import verify

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = sorted((ROOT / "leaderboard").glob("*.json"))


@pytest.mark.parametrize("path", ENTRIES, ids=[path.name for path in ENTRIES])
def test_every_entry_verifies(path: Path) -> None:
    assert verify(read_submission(path)).scores


@pytest.mark.slow
def test_the_rendered_leaderboard_is_that_of_the_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["leaderboard", "--check"]) == 0
