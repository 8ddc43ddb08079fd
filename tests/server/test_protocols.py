"""The server's ends of connections, on wires that a test holds: what is parsed when, and what is not sent any more."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn import Config
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.server import ServerState

from llmserve_env.server.connections import MAX_AHEAD, PIECES_AT_ONCE, GuardedHttp, GuardedWebSocket
from tests.server.test_connections import HANDSHAKE


class Wire(asyncio.Transport):
    """The server's end of a connection, which takes nothing more when it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read, self.is_open, self.written = True, True, b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.is_open
        self.written += data

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def abort(self) -> None:
        self.is_open = False

    def close(self) -> None:
        self.is_open = False

    def is_closing(self) -> bool:
        return not self.is_open

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


def test_answers_to_a_connection_that_is_gone_are_no_errors(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(ahead: int, is_cut_off: bool) -> int:
        may_answer, answered = asyncio.Event(), list[str]()

        async def late(scope: Any, _receive: Any, send: Any) -> None:
            await may_answer.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"late"})
            answered.append(scope["path"])

        config, state = Config(late, http="httptools", lifespan="off"), ServerState()
        config.load()
        server_end, wire = GuardedHttp(config, state, {}), Wire()
        wire.set_protocol(server_end)
        server_end.connection_made(wire)
        server_end.data_received(ahead * b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(0)
        if not is_cut_off:
            wire.close()
            server_end.connection_lost(None)
        assert wire.is_closing()
        may_answer.set()
        await asyncio.gather(*state.tasks)
        if is_cut_off:
            server_end.connection_lost(None)
        return len(answered)

    assert asyncio.run(scene(ahead=3, is_cut_off=False)) == 1
    assert asyncio.run(scene(ahead=MAX_AHEAD + 2, is_cut_off=True)) == 1
    assert all(record.levelno < logging.ERROR for record in caplog.records)


def test_a_websocket_that_is_cut_off_is_sent_nothing_more() -> None:
    async def scene() -> None:
        async def answer(_scope: Any, receive: Any, send: Any) -> None:
            await receive()
            await send({"type": "websocket.accept"})
            await receive()
            with pytest.raises(ClientDisconnected):
                await send({"type": "websocket.send", "text": "too late"})
            ended.append(True)

        ended = list[bool]()
        config, state = Config(answer, http="httptools", lifespan="off"), ServerState()
        config.load()
        socket_end, wire = GuardedWebSocket(config, state, {}), Wire()
        socket_end.connection_made(wire)
        socket_end.data_received(HANDSHAKE)
        for _ in range(5):
            await asyncio.sleep(0)
        text, ping = bytes((0x81, 0x82, 0, 0, 0, 0, 0x7B, 0x7D)), bytes((0x89, 0x80, 0, 0, 0, 0))
        socket_end.data_received(text + 2 * int(PIECES_AT_ONCE) * ping)
        assert wire.is_closing()
        await asyncio.gather(*state.tasks)
        assert ended == [True]

    asyncio.run(scene())


def test_messages_sent_ahead_are_parsed_as_they_are_taken() -> None:
    async def scene() -> list[int]:
        async def take_nothing(_scope: Any, _receive: Any, _send: Any) -> None:
            await asyncio.Event().wait()

        config = Config(take_nothing, http="httptools", lifespan="off")
        config.load()
        socket_end = GuardedWebSocket(config, ServerState(), {})
        socket_end.connection_made(Wire())
        socket_end.data_received(HANDSHAKE)
        socket_end.data_received(2_000 * bytes((0x81, 0x82, 0, 0, 0, 0, 0x7B, 0x7D)))
        waiting, taken = socket_end.queue.qsize(), 0
        while socket_end.queue.qsize():
            taken += (await socket_end.receive())["type"] == "websocket.receive"
        return [waiting, taken]

    waiting, taken = asyncio.run(scene())
    assert taken == 2_000
    assert waiting <= 200
