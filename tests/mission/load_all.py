"""Import every test of the mission, so that all rows are registered, in the order of the document that asks."""

from __future__ import annotations

from importlib import import_module

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
for _subject in SUBJECTS:
    import_module(f"tests.mission.test_{_subject}")
