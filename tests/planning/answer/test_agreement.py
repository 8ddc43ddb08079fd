"""One question, one answer: the commands agree, the answer holds on unseen traffic, and nothing cheaper does."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.answers import examine, examine_all
from llmserve_env.evaluation.runner import Threads


@pytest.mark.parametrize("number", [2])
def test_the_commands_agree_and_no_cheaper_configuration_is_accepted(number: int, tmp_path: Path) -> None:
    found = examine(number, tmp_path, Threads(2))
    assert found.agree
    assert found.cheaper == ()


@pytest.mark.slow
def test_answers_of_thirty_random_tasks_agree_and_hold() -> None:
    found = examine_all(30, Threads(2))
    answered = [one for one in found if one.is_kept_unseen is not None]
    assert all(one.agree for one in found)
    assert all(one.cheaper == () for one in found)
    assert len(answered) >= 20
    assert sum(bool(one.is_kept_unseen) for one in answered) >= 0.95 * len(answered)
