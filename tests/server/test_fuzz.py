"""Requests and messages that are made up: whatever they say, the server has an answer."""

from __future__ import annotations

import pytest

from tests.server.fuzzing import Operation, fuzz, operations
from tests.server.fuzzing_messages import DOORS, fuzz_messages

REQUESTS = 40
MESSAGES = 150


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the fuzzer's own code
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_no_request_is_answered_with_500(operation: Operation) -> None:
    assert fuzz(operation, REQUESTS).total() >= REQUESTS


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_no_message_meets_an_error_that_the_server_did_not_expect(door: str) -> None:
    answered = fuzz_messages(door, MESSAGES)
    assert answered.total() == MESSAGES
    assert len(answered) > 1
