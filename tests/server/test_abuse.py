"""Hostile traffic against a real process: it answers everything, goes on serving, and does not swell."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.server.running import RunningServer
from tests.server.test_limits import HOSTILE

pytestmark = pytest.mark.slow
PATHS = ("/step", "/reset", "/grader", "/play", "/mcp")
PIECE = b"x" * 1_000_000
PIECES = 50
ROUNDS = 12
STEPS = 190
MAX_GROWTH_MB = 25.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with RunningServer("memory", LLMSERVE_MAX_LIVE_SESSIONS="8") as found:
        # Everything is loaded before anything is measured.
        httpx.get(f"{found.url}/baseline", timeout=600).raise_for_status()
        yield found


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=120) as found:
        yield found


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1e3


def post_all(port: int, body: Iterator[bytes], length: int | None) -> bytes:
    """Send a body as long as the server takes it; the beginning of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        connection.sendall(f"POST /step HTTP/1.1\r\nhost: x\r\n{size}\r\n\r\n".encode())
        try:
            for piece in body:
                connection.sendall(piece if length else b"%x\r\n%s\r\n" % (len(piece), piece))
        except ConnectionError:
            pass  # It has answered and hung up: nobody has to listen to all of it.
        try:
            return connection.recv(4096)
        except ConnectionError:
            return b""


@pytest.mark.parametrize("length", [PIECES * len(PIECE), None], ids=["announced", "in pieces"])
def test_fifty_megabytes_are_refused_and_not_kept(
    server: RunningServer, client: httpx.Client, length: int | None
) -> None:
    client.post("/reset", json={}).raise_for_status()
    before = resident_mb(server.pid)
    answer = post_all(server.port, (PIECE for _ in range(PIECES)), length)
    assert not answer or b" 413 " in answer.splitlines()[0]
    assert resident_mb(server.pid) - before < MAX_GROWTH_MB
    assert client.post("/reset", json={}).status_code == 200


def abuse(client: httpx.Client) -> None:
    """The hand-written list at every door, and sessions that nobody ends."""
    for path in PATHS:
        for body in HOSTILE.values():
            answer = client.post(path, content=body, headers={"content-type": "application/json"})
            assert answer.status_code < 500, (path, body[:80])
    for seed in range(20):
        client.post("/reset", json={"task_id": 1 + seed % 3, "seed": seed}).raise_for_status()
        client.post("/step", json={"action": {}}).raise_for_status()
        assert client.get(f"/no-such-page/{seed}").status_code == 404


def test_memory_does_not_grow_under_abuse(server: RunningServer, client: httpx.Client) -> None:
    for _ in range(ROUNDS // 3):
        abuse(client)
    settled = resident_mb(server.pid)
    for _ in range(ROUNDS):
        abuse(client)
    assert resident_mb(server.pid) - settled < MAX_GROWTH_MB
    # Strange paths and methods must not fill the operators' tables either.
    assert len(client.get("/metrics").text.splitlines()) < 1_000


def text_frame(message: dict[str, object]) -> bytes:
    """A short message as a client sends it, under a mask of zeroes."""
    content = json.dumps(message).encode()
    return bytes((0x81, 0x80 + len(content), 0, 0, 0, 0)) + content


def test_a_client_that_takes_no_answers_is_neither_waited_for_nor_remembered(
    server: RunningServer, client: httpx.Client
) -> None:
    handshake = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13"
    messages = text_frame({"type": "reset", "data": {}}) + 1_500 * text_frame({"type": "step", "data": {}})
    before, sent = resident_mb(server.pid), 0
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"GET /ws HTTP/1.1\r\nhost: x\r\n{handshake}\r\n".encode())
        connection.sendall(f"sec-websocket-key: {'A' * 22}==\r\n\r\n".encode())
        connection.setblocking(False)
        client.post("/reset", json={"seed": 1}).raise_for_status()
        for _ in range(STEPS):
            # The server does not read on for ever: that is the point.
            with suppress(BlockingIOError):
                sent += connection.send(messages[sent % len(messages) :])
            client.post("/step", json={"action": {}}).raise_for_status()
        assert resident_mb(server.pid) - before < MAX_GROWTH_MB
    assert sent > len(messages)
