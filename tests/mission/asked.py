"""What was asked for, line by line: each test says what it proves, and docs/mission.md is written from these rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])
AS_ASKED = "as asked"


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was asked for, what is here, and why where the two differ."""

    asked: str
    here: str
    why: str
    subject: str
    line: int


ROWS: list[Row] = []


def asked(words: str, here: str, why: str = AS_ASKED) -> Callable[[T], T]:
    """Mark a test as the proof of a row; `words` are words of the document that asks."""

    def note(test: T) -> T:
        ROWS.append(Row(words, here, why, test.__module__.rpartition("test_")[2], inspect.getsourcelines(test)[1]))
        return test

    return note
