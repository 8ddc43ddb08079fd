"""All rows of the mission, in the order of the document that asks."""

from __future__ import annotations

from importlib import import_module

from tests.mission.asked import ROWS, Row

SUBJECTS = (
    "promises",
    "action",
    "observation",
    "tasks",
    "lookup_table",
    "reward",
    "graders",
    "runtime",
    "commands",
    "notebook",
)


def rows() -> list[Row]:
    """All rows in the order of the subjects, whatever was imported before and however often."""
    for subject in SUBJECTS:
        import_module(f"tests.mission.test_{subject}")
    return sorted(set(ROWS), key=lambda row: (SUBJECTS.index(row.subject), row.line))
