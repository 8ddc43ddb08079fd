"""Actions that change some knobs; the others keep the values that were last requested."""

from __future__ import annotations

from llmserve_env.arrays import Array

Changes = tuple[tuple[int, float], ...]
"""Columns of the knob matrix and their new values."""


def changed(knobs: Array, changes: Changes) -> Array:
    """A row of the knob matrix with some of its values replaced."""
    row = knobs.copy()
    for column, value in changes:
        row[column] = value
    return row
