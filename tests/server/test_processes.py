"""Every process of a server has the same limits and the same log, whether it is the only one or one of several."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest

from tests.server.running import RunningServer

BAD_REQUESTS = 150
PER_MINUTE = 20


@pytest.fixture(params=[1, 2], ids=["alone", "two workers"])
def workers(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def test_requests_are_logged_and_nonsense_fills_no_disk(tmp_path: Path, workers: int) -> None:
    store = f"sqlite:///{tmp_path / 'sessions.db'}"
    with RunningServer(store, workers=workers, LLMSERVE_LOG_REQUESTS="true") as server:
        assert httpx.get(f"{server.url}/tasks", timeout=600).status_code == 200
        for _ in range(BAD_REQUESTS):
            with socket.create_connection(("127.0.0.1", server.port), 60) as one:
                one.sendall(b"nonsense\r\n\r\n")
                assert one.recv(4096).startswith(b"HTTP/1.1 400 ")
    log = "".join(server.said)
    assert log.count("GET /tasks 200") == 1
    # The count of a process begins anew with the minute, which may pass once meanwhile.
    assert 0 < log.count("Invalid HTTP request received.") <= 2 * PER_MINUTE * workers


def test_no_process_takes_more_connections_than_it_may_have_files(tmp_path: Path, workers: int) -> None:
    store, seen = f"sqlite:///{tmp_path / 'sessions.db'}", set[str]()
    with RunningServer(store, workers=workers, LLMSERVE_MAX_CONNECTIONS=str(10**9)) as server:
        while len(seen) < workers:
            seen.add(httpx.get(f"{server.url}/health", timeout=600).headers["x-worker"])
    assert "".join(server.said).count("connections are taken") == workers
