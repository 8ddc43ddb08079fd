"""Connections as `benchmarks.chaos_attacks` makes them: byte by byte, from an address of the loopback network."""

from __future__ import annotations

import socket
from collections.abc import Callable

GoOn = Callable[[], bool]
"""Whether the time of an attack is not over yet."""
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
CONNECT_TIMEOUT_S = 10.0


def connected(port: int, address: str) -> socket.socket:
    """A connection to the server."""
    return socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S, source_address=(address, 0))


def open_websocket(port: int, address: str) -> socket.socket:
    """A WebSocket that does not block; OSError if the server does not accept one."""
    one = connected(port, address)
    try:
        one.sendall(HANDSHAKE)
        answer = read_until(one, b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise ConnectionRefusedError(f"the server did not accept a WebSocket: {answer[:40]!r}")
        one.setblocking(False)
    except OSError:
        one.close()
        raise
    return one


def read_until(connection: socket.socket, end: bytes) -> bytes:
    """What the server sends up to a word and the rest of that piece."""
    content = b""
    while end not in content:
        piece = connection.recv(65_536)
        if not piece:
            break
        content += piece
    return content
