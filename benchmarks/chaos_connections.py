"""The attacks of `benchmarks.chaos` that consist of connections: many, held, half-open, dripping or without end."""

from __future__ import annotations

import json
import selectors
import socket
from collections import Counter
from contextlib import ExitStack, suppress
from typing import cast

from benchmarks.chaos_sockets import HANDSHAKE, GoOn, connected, open_websocket, read_until

CONNECTIONS = 1_000


def half_open(port: int, go_on: GoOn) -> dict[str, int]:
    """Open connections and send half of the headers."""
    tally: Counter[str] = Counter()
    held: list[socket.socket] = []
    while go_on():
        with suppress(OSError):
            one = connected(port, "127.0.1.8")
            one.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n")
            held.append(one)
            tally["half-sent requests"] += 1
        if len(held) > 3_000:
            held.pop(0).close()
    for one in held:
        one.close()
    return dict(tally)


def floods(port: int, go_on: GoOn) -> dict[str, int]:
    """Four WebSockets that ask for their state without end; one that is refused or cut off is opened again."""
    content = json.dumps({"type": "state"}).encode()
    frames = 500 * (bytes((0x81, 0x80 + len(content), 0, 0, 0, 0)) + content)
    tally: Counter[str] = Counter()
    held: list[socket.socket] = []
    while go_on():
        if len(held) < 4:
            try:
                held.append(open_websocket(port, "127.0.1.9"))
            except OSError:
                tally["refused"] += 1
        for one in held.copy():
            try:
                with suppress(BlockingIOError):
                    tally["messages"] += one.send(frames) // (len(content) + 6)
                with suppress(BlockingIOError):
                    tally["answers"] += one.recv(1 << 16).count(b'"type":"state"')
            except OSError:
                tally["cut off"] += 1
                held.remove(one)
                one.close()
    for one in held:
        one.close()
    return dict(tally)


def hoarded_sockets(port: int, go_on: GoOn) -> dict[str, int]:
    """As many WebSockets as the server gives, each with an episode."""
    reset = json.dumps({"type": "reset", "data": {"task_id": "bursty_workload"}}).encode()
    frame = bytes((0x81, 0x80 + len(reset), 0, 0, 0, 0)) + reset
    tally: Counter[str] = Counter()
    held: list[socket.socket] = []
    while go_on():
        with suppress(OSError):
            one = connected(port, "127.0.1.10")
            one.sendall(HANDSHAKE)
            held.append(one)
            answer = read_until(one, b"\r\n\r\n")
            if b"CAPACITY" not in answer:
                one.sendall(frame)
                answer += read_until(one, b'"type"')
            is_refused = b"CAPACITY" in answer
            tally["refused" if is_refused else "WebSockets"] += 1
            if is_refused:
                held.pop().close()
    for one in held:
        one.close()
    return dict(tally)


def dripping_bodies(port: int, go_on: GoOn) -> dict[str, int]:
    """Announce bodies and send them byte by byte."""
    tally: Counter[str] = Counter()
    held: list[socket.socket] = []
    while go_on():
        with suppress(OSError):
            if len(held) < 500:
                one = connected(port, "127.0.1.13")
                one.sendall(b"POST /step HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")
                held.append(one)
                tally["bodies"] += 1
        for one in held[:: max(len(held) // 20, 1)]:
            with suppress(OSError):
                one.send(b" ")
    for one in held:
        one.close()
    return dict(tally)


def endless(port: int, go_on: GoOn) -> dict[str, int]:
    """Headers, trailers, requests and pings without end, on one connection after the other."""
    get = b"GET / HTTP/1.1\r\nhost: x\r\n"
    body = b"POST /step HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"
    ping = bytes((0x89, 0x80, 0, 0, 0, 0))
    ways = ((get, b"a: b\r\n"), (get + b"a: ", b"b"), (body, b"a: b\r\n"), (b"", get + b"\r\n"), (HANDSHAKE, ping))
    tally: Counter[str] = Counter()
    while go_on():
        for beginning, more in ways:
            with suppress(OSError), connected(port, "127.0.1.14") as one:
                tally["endless requests"] += 1
                one.sendall(beginning)
                if beginning == HANDSHAKE:
                    one.recv(4096)
                for _ in range(100):
                    one.sendall(more * 20_000)
    return dict(tally)


def many_connections(port: int, go_on: GoOn) -> dict[str, int]:
    """As many connections as one address may have, each of which asks again as soon as it is answered."""
    asks = [f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode() for path in ("/metrics", "/ready", "/tasks", "/x")]
    tally: Counter[str] = Counter()
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for number in range(CONNECTIONS):
            with suppress(OSError):
                one = stack.enter_context(connected(port, "127.0.1.17"))
                one.sendall(asks[number % len(asks)])
                selector.register(one, selectors.EVENT_READ, asks[number % len(asks)])
        while go_on() and selector.get_map():
            for key, _ in selector.select(timeout=1.0):
                one = cast(socket.socket, key.fileobj)
                try:
                    answer = one.recv(1 << 16)
                    if answer:
                        tally[answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "pieces"] += 1
                        one.sendall(key.data)
                    else:
                        raise ConnectionResetError
                except OSError:
                    tally["cut off"] += 1
                    selector.unregister(one)
    return dict(tally)
