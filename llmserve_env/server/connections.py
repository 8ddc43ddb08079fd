"""The connections of a server process: how many there may be, and how long a request's headers may take.

The classes extend uvicorn's protocols: they override callbacks of asyncio, httptools and websockets, and read a few of
uvicorn's own attributes (`cycle`, `pipeline`, `transport`, `read_paused`). The module imports little, because it is in
place before the settings are read; `settings.py` takes its defaults from here and checks them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from llmserve_env.server.clients import network_of
from llmserve_env.server.limits import RateLimit

log = logging.getLogger("llmserve.server")
MAX_CONNECTIONS = 2_000
MAX_CONNECTIONS_PER_CLIENT = 1_100
HEADER_TIMEOUT_S = 10.0
MAX_HEADER_BYTES = 65_536
"""Bytes that may arrive before headers, or a piece of a body, are complete; addresses and trailers count, too."""
MAX_AHEAD = 16
"""Requests that a client may send on one connection before the one before them is answered."""
SLICE_BYTES = 1_024
"""Bytes parsed between checks of the limits: what arrives at once may hold a thousand requests or frames."""
PIECES_PER_S, PIECES_AT_ONCE = 20.0, 100.0
"""Pings, pongs and parts of messages that one WebSocket may send; no answer paces them."""
SPARE_DESCRIPTORS = 100
"""Descriptors for files, the database and the connections that are being refused."""
REPORT_INTERVAL_S = 60.0


def _setting(name: str, default: float) -> float:
    """A setting as it stands in the environment; one that makes no sense stops the server when it is checked."""
    try:
        return float(os.environ.get(f"LLMSERVE_{name}", default))
    except ValueError:
        return default


def raise_descriptor_limit() -> int:
    """Allow this process as many open files as the system lets it have; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


class Guard:
    """Counts the open connections of this process, and those that were closed at once or were too slow."""

    def __init__(self) -> None:
        self.max_connections = int(_setting("MAX_CONNECTIONS", MAX_CONNECTIONS))
        self.header_timeout_s = _setting("HEADER_TIMEOUT_S", HEADER_TIMEOUT_S)
        # Behind a proxy, all connections come from its address.
        is_behind_proxy = _setting("TRUSTED_HOPS", 0) > 0
        per_client = int(_setting("MAX_CONNECTIONS_PER_CLIENT", MAX_CONNECTIONS_PER_CLIENT))
        self.max_per_client = self.max_connections if is_behind_proxy else per_client
        self.refused: Counter[str] = Counter()
        self._addresses: dict[asyncio.BaseTransport, str] = {}
        self._open_of: Counter[str] = Counter()
        self._reported_at_s, self._reported = 0.0, 0

    @property
    def num_open(self) -> int:
        return len(self._addresses)

    def fit_into(self, descriptors: int) -> None:
        """Take no more connections than the process may have files."""
        possible = max(descriptors - SPARE_DESCRIPTORS, 1)
        if possible < self.max_connections:
            log.warning("the system allows %d open files: at most %d connections are taken", descriptors, possible)
            self.max_connections = possible

    def admit(self, transport: asyncio.BaseTransport) -> bool:
        """Count a new connection; False if there are too many."""
        peer = transport.get_extra_info("peername")
        address = network_of(str(peer[0])) if peer else ""
        if self.num_open >= self.max_connections:
            return self.refuse("too many")
        if self._open_of[address] >= self.max_per_client:
            return self.refuse("too many of one address")
        self._addresses[transport] = address
        self._open_of[address] += 1
        return True

    def refuse(self, reason: str) -> bool:
        """Count a connection that is closed by us, with a line in the log once a minute."""
        self.refused[reason] += 1
        now_s = time.monotonic()
        if now_s - self._reported_at_s > REPORT_INTERVAL_S:
            total = self.refused.total()
            log.warning("closed %d connections (%s) since the last such line", total - self._reported, reason)
            self._reported_at_s, self._reported = now_s, total
        return False

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """Stop counting a connection."""
        address = self._addresses.pop(transport, None)
        if address is not None:
            self._open_of[address] -= 1
            if not self._open_of[address]:
                del self._open_of[address]


guard = Guard()
"""The guard of this process."""


class GuardedHttp(HttpToolsProtocol):
    """HTTP with a limit of connections, and of the time and size of headers, which the parser leaves to its user."""

    _headers_due: asyncio.TimerHandle | None = None
    _unread_bytes = 0
    """Received since headers or a piece of a body were complete."""
    _unanswered: tuple[RequestResponseCycle, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if guard.admit(transport):
            self._start_header_timer()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        guard.leave(self.transport)
        self._stop_header_timer()
        self._drop_answers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # Empty lines before a request begin none, but end the wait for one.
        if self._headers_due is None and self.cycle.response_complete:
            self._start_header_timer()
        for start in range(0, len(data), SLICE_BYTES):
            self._take(data[start : start + SLICE_BYTES])
            # A WebSocket has nothing to say until it is accepted.
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                return

    def _take(self, some: bytes) -> None:
        self._unread_bytes += len(some)
        super().data_received(some)
        if self._unread_bytes > MAX_HEADER_BYTES:
            self._give_up("headers too long")
        elif len(self.pipeline) > MAX_AHEAD:
            self._give_up("too many requests ahead")

    def on_message_begin(self) -> None:
        if self._headers_due is None:
            self._start_header_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._unread_bytes = 0
        self._stop_header_timer()
        super().on_headers_complete()
        self._unanswered = (*(one for one in self._unanswered if not one.response_complete), self.cycle)

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread_bytes = 0
        super().on_message_complete()

    def _start_header_timer(self) -> None:
        self._headers_due = self.loop.call_later(guard.header_timeout_s, self._give_up, "headers too slow")

    def _stop_header_timer(self) -> None:
        if self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def _give_up(self, reason: str) -> None:
        guard.refuse(reason)
        self._drop_answers()
        self.transport.abort()

    def _drop_answers(self) -> None:
        """Drop the answers that are under way; writing them to a connection that is closed would be an error.

        Uvicorn does so for the last of the requests sent ahead only, and not before the loop's next turn.
        """
        for cycle in self._unanswered:
            cycle.disconnected = True
            cycle.message_event.set()


class GuardedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket that is counted until it ends; it begins as a counted HTTP connection.

    Pings are answered, and messages put together, before the application sees anything, so their limits are here.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._pieces = RateLimit(PIECES_PER_S, PIECES_AT_ONCE)
        self._ahead = b""

    def connection_lost(self, exc: Exception | None) -> None:
        guard.leave(self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._ahead += data
        self._take_ahead()

    async def receive(self) -> Any:
        message = await super().receive()
        self._take_ahead()
        return message

    def _take_ahead(self) -> None:
        """Parse what has arrived until there is a message for the application."""
        while self._ahead and not self.read_paused and not self.transport.is_closing():
            some, self._ahead = self._ahead[:SLICE_BYTES], self._ahead[SLICE_BYTES:]
            super().data_received(some)

    def handle_ping(self) -> None:
        if self._count_piece():
            super().handle_ping()

    def handle_pong(self, event: Frame) -> None:
        if self._count_piece():
            super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        if self._count_piece():
            super().handle_cont(event)

    def _count_piece(self) -> bool:
        """Count a frame that is not a whole message; False if there are too many of them, which ends the connection."""
        if not self.transport.is_closing() and self._pieces.wait_s("") > 0.0:
            guard.refuse("too many pieces")
            # Whatever the application sends from now on is dropped.
            self.disconnected = True
            self.transport.abort()
        return not self.transport.is_closing()


class CalmFilter(logging.Filter):
    """Lets each message of a logger through a few times a minute, so that an attack cannot fill the disk with it."""

    def __init__(self, per_minute: int = 20) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._minute, self._seen = 0, Counter[Any]()

    def filter(self, record: logging.LogRecord) -> bool:
        minute = int(record.created // 60)
        if minute != self._minute:
            self._minute, self._seen = minute, Counter()
        self._seen[record.msg] += 1
        return self._seen[record.msg] <= self._per_minute
