"""Servers for the tests: most run in process; those that must be killed run as a process of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from llmserve_env.server.application import create_app
from llmserve_env.server.settings import Settings
from tests.server.running import RunningServer


def settings(**changes: Any) -> Settings:
    """Settings for tests: in memory, without OpenEnv's console and without limits that a fast test would meet.

    The memory limit is above what other tests have left in this process, which counts as the server's.
    """
    quiet = {
        "store": "memory",
        "openenv_console": False,
        "requests_per_s": 0,
        "steps_per_s": 0,
        "expensive_per_min": 0,
        "plays_per_s": 0,
        "memory_mb": 16_000,
    }
    return Settings.model_validate({**quiet, **changes})


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A server in process."""
    with TestClient(create_app(settings())) as found:
        yield found


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server as a process of its own, shared by tests that need real sockets."""
    folder: Path = tmp_path_factory.mktemp("sessions")
    with RunningServer(store=f"sqlite:///{folder / 'sessions.db'}") as found:
        yield found
