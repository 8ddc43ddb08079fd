"""Requests made up from the OpenAPI document: whatever they say, the server has an answer."""

from __future__ import annotations

import pytest

from tests.server.fuzzing import Operation, fuzz, operations

REQUESTS = 40


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the fuzzer's own code
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.label)
def test_no_request_is_answered_with_500(operation: Operation) -> None:
    assert fuzz(operation, REQUESTS).total() > 0
