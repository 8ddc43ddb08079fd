"""Connections that are too many or too slow, against a real process."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmserve_env.server.connections import SPARE_DESCRIPTORS, CalmFilter
from tests.server.running import RunningServer

MAX_CONNECTIONS, MAX_PER_CLIENT = 60, 40
HEADER_TIMEOUT_S = 2.0
BODY_TIMEOUT_S = 2.0
READ_TIMEOUT_S = 60.0
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    limits: dict[str, Any] = {
        "LLMSERVE_MAX_CONNECTIONS": str(MAX_CONNECTIONS),
        "LLMSERVE_MAX_CONNECTIONS_PER_CLIENT": str(MAX_PER_CLIENT),
        "LLMSERVE_HEADER_TIMEOUT_S": str(HEADER_TIMEOUT_S),
        "LLMSERVE_BODY_TIMEOUT_S": str(BODY_TIMEOUT_S),
        "LLMSERVE_PLAYS_PER_S": "20",
    }
    with RunningServer("memory", **limits) as found:
        httpx.post(f"{found.url}/reset", json={}, timeout=600).raise_for_status()
        yield found


def connect(server: RunningServer, source: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), READ_TIMEOUT_S, source_address=(source, 0))


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes the connection; it waits for that."""
    with contextlib.suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


def test_half_sent_headers_are_not_waited_for(server: RunningServer) -> None:
    silent, slow, late = (connect(server, "127.0.0.2") for _ in range(3))
    slow.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
    late.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert b" 200 " in late.recv(4096).splitlines()[0]
    late.sendall(b"GET /heal")
    assert [is_closed(one) for one in (silent, slow)] == [True, True]
    while late.recv(4096):
        pass  # the rest of the first answer, then the end
    for one in (silent, slow, late):
        one.close()


def test_a_body_that_drips_is_not_waited_for(server: RunningServer) -> None:
    with connect(server, "127.0.0.2") as dripping:
        dripping.sendall(b"POST /step HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert b" 408 " in dripping.recv(4096).splitlines()[0]


def test_one_address_cannot_take_all_connections(server: RunningServer) -> None:
    attackers = [connect(server, "127.0.0.3") for _ in range(3 * MAX_PER_CLIENT)]
    with httpx.Client(base_url=server.url, timeout=60) as honest:
        assert [honest.get("/health").status_code for _ in range(5)] == [200] * 5
        assert honest.post("/step", json={"action": {}}).status_code in (200, 409)
        metrics = honest.get("/metrics").text
    assert 'llmserve_refused_connections_total{reason="too many of one address"}' in metrics
    assert all(is_closed(one) for one in attackers)
    for one in attackers:
        one.close()
    with httpx.Client(
        base_url=server.url, timeout=60, transport=httpx.HTTPTransport(local_address="127.0.0.3")
    ) as back:
        assert back.get("/health").status_code == 200


def test_many_addresses_cannot_take_more_connections_than_there_are(server: RunningServer) -> None:
    before = refused(server, "too many")
    with contextlib.ExitStack() as stack:
        sources = ["127.0.0.9"] * MAX_PER_CLIENT + ["127.0.0.10"] * MAX_PER_CLIENT
        held = [stack.enter_context(connect(server, source)) for source in sources]
        # Some are closed at once; the others send no headers, and are closed when the time for them is over.
        assert all(is_closed(one) for one in held)
    assert refused(server, "too many") - before >= len(held) - MAX_CONNECTIONS


def test_a_websocket_that_ends_makes_room_for_another_connection(server: RunningServer) -> None:
    for _ in range(3 * MAX_PER_CLIENT):
        with connect(server, "127.0.0.4") as one:
            one.sendall(HANDSHAKE)
            assert b" 101 " in one.recv(4096).splitlines()[0]


@pytest.mark.parametrize(
    ("path", "message", "answer"),
    [
        ("/ws", {"type": "state"}, b'"type":"state"'),
        ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, b'"jsonrpc"'),
    ],
)
def test_four_floods_of_messages_do_not_keep_others_from_being_answered(
    server: RunningServer, path: str, message: dict[str, Any], answer: bytes
) -> None:
    content = json.dumps(message).encode()
    frame = bytes((0x81, 0x80 + len(content), 0, 0, 0, 0)) + content
    with contextlib.ExitStack() as stack, httpx.Client(base_url=server.url, timeout=60) as honest:
        floods = [stack.enter_context(connect(server, "127.0.0.5")) for _ in range(4)]
        for one in floods:
            one.sendall(HANDSHAKE.replace(b"/ws", path.encode()))
            one.recv(4096)
            one.setblocking(False)
        answered = 0
        for _ in range(30):
            for one in floods:
                with contextlib.suppress(BlockingIOError):
                    one.send(2_000 * frame)
                with contextlib.suppress(BlockingIOError):
                    answered += one.recv(1 << 20).count(answer)
            assert honest.get("/health").status_code == 200
        # Nobody waits for more than a few messages of each flood: the floods get on about as fast as the others.
        assert answered < 30 * 4 * 200


def refused(server: RunningServer, reason: str) -> float:
    """How many connections the server has closed for this reason."""
    lines = httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    name = f'llmserve_refused_connections_total{{reason="{reason}"}} '
    return sum(float(line.removeprefix(name)) for line in lines if line.startswith(name))


GET = b"GET / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = b"POST /step HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
PING, TEXT, PART, PONG = (bytes((kind, 0x82, 0, 0, 0, 0)) + b"{}" for kind in (0x89, 0x01, 0x00, 0x8A))


@pytest.mark.parametrize(
    ("beginning", "more", "reason"),
    [
        (GET, b"a: b\r\n", "headers too long"),
        (GET + b"a: ", b"b", "headers too long"),
        (b"GET /", b"b", "headers too long"),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a: b\r\n", "headers too long"),
        (CHUNKED + b"2;", b"b", "headers too long"),
        (b"", GET + b"\r\n", "too many requests ahead"),
        (HANDSHAKE, PING, "too many pieces"),
        (HANDSHAKE, PONG, "too many pieces"),
        (HANDSHAKE, PART, "too many pieces"),
    ],
    ids=[
        "headers",
        "a header",
        "an address",
        "trailers",
        "a chunk",
        "requests",
        "pings",
        "pongs",
        "parts of a message",
    ],
)
def test_what_has_no_end_is_cut_off_at_once(server: RunningServer, beginning: bytes, more: bytes, reason: str) -> None:
    before, piece = refused(server, reason), more * (100_000 // len(more))
    with connect(server, "127.0.0.7") as endless, contextlib.suppress(ConnectionError):
        endless.sendall(beginning)
        if beginning == HANDSHAKE:
            endless.recv(4096)
            endless.sendall(TEXT)
        for _ in range(200):
            endless.sendall(piece)
    assert refused(server, reason) == before + 1


def test_a_client_that_goes_away_in_the_middle_of_a_body_is_no_error_of_the_server(server: RunningServer) -> None:
    with connect(server, "127.0.0.8") as leaving:
        leaving.sendall(b"POST /step HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
    while 'route="/step",status="499"' not in metrics:
        metrics = httpx.get(f"{server.url}/metrics", timeout=60).text
        assert 'status="500"' not in metrics
    assert "llmserve_errors_total 0.0" in metrics


def test_a_message_is_logged_a_few_times_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    calm = CalmFilter(per_minute=3)
    record = logging.LogRecord("x", logging.WARNING, __file__, 1, "Invalid HTTP request received.", (), None)
    record.created = 600.0
    assert [calm.filter(record) for _ in range(5)] == [True, True, True, False, False]
    record.created = 660.0
    assert calm.filter(record)


def test_the_process_has_no_more_descriptors_open_than_connections_and_files(server: RunningServer) -> None:
    attackers = [connect(server, "127.0.0.6") for _ in range(2 * MAX_PER_CLIENT)]
    assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) < MAX_CONNECTIONS + SPARE_DESCRIPTORS
    for one in attackers:
        one.close()
