"""The exception tree is the one its module draws."""

from __future__ import annotations

import re

from llmserve_env import errors


def test_the_drawing_shows_every_error_and_no_other() -> None:
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or ""))
    assert drawn == {name for name, value in vars(errors).items() if isinstance(value, type)} - {"LLMServeError"}


def test_one_except_clause_catches_them_all() -> None:
    raised = [value for value in vars(errors).values() if isinstance(value, type)]
    assert raised
    assert all(issubclass(cls, errors.LLMServeError) for cls in raised)
