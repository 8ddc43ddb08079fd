"""Servers for the tests of the mission: in process, and as a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.server.conftest import client, running

__all__ = ["client", "running"]
Answer = dict[str, Any]


@pytest.fixture
def answer(client: TestClient) -> Callable[..., Answer]:
    """Call a path that must succeed: GET, or POST with a body."""

    def call(path: str, body: Any = None) -> Answer:
        found = client.get(path) if body is None else client.post(path, json=body)
        assert found.status_code == 200, found.text
        content: Answer = found.json()
        return content

    return call
