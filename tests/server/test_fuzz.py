"""Requests made up from the OpenAPI document: whatever they say, the server has an answer."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from server.app import create_app
from tests.server.conftest import settings as server_settings

app = create_app(server_settings(max_live_sessions=8))
schema = schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the fuzzer's own code
@schema.parametrize()
@settings(
    max_examples=40, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
def test_no_request_is_answered_with_500(case: schemathesis.Case[Any]) -> None:
    assert case.call().status_code not in range(500, 503)
