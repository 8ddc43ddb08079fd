"""Recorded runs that tests read: the repository's own, and others where they lie beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fidelity import DEFAULT_TRUTH, REAL_SET, VIRTUAL_SET

GIVEN = Path(__file__).parents[2] / "shared" / "vllm_truth"


def recorded_sets(name: str) -> list[object]:
    """Folders of one kind of recording, as parameters of a test."""
    folders = [DEFAULT_TRUTH / name, *(path for path in (GIVEN / name,) if (path / "runs.json").is_file())]
    return [pytest.param(folder, id=folder.parent.name) for folder in folders]


VIRTUAL, REAL = DEFAULT_TRUTH / VIRTUAL_SET, DEFAULT_TRUTH / REAL_SET
ALL_VIRTUAL, ALL_REAL = recorded_sets(VIRTUAL_SET), recorded_sets(REAL_SET)
