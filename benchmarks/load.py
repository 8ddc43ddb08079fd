"""Many lightweight clients in one process, so that the server is the bottleneck."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import websockets

STEPS_PER_EPISODE = 200


@dataclass(slots=True)
class Load:
    """The clients' measurements."""

    latencies_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def steps_per_s(self) -> float:
        return len(self.latencies_s) / self.seconds

    def quantile_ms(self, fraction: float) -> float:
        """Percentile of the step latencies."""
        ordered = sorted(self.latencies_s)
        return 1e3 * ordered[min(int(fraction * len(ordered)), len(ordered) - 1)]


class HttpConnection:
    """One keep-alive connection that posts JSON; just enough of HTTP/1.1 for a server that sends lengths."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, body: Any) -> tuple[int, bytes]:
        """Send a request; return status and body of the answer."""
        content = json.dumps(body).encode()
        lines = ["host: x", "content-type: application/json", f"content-length: {len(content)}"]
        request = "\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode() + content
        try:
            return await self._exchange(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            # A server closes connections that have been idle for a while, perhaps just as a request arrives.
            await self.open()
            return await self._exchange(request)

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        self._writer.write(request)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        return status, await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


class Start:
    """A barrier: all clients start stepping together once every one has a session, and the clock starts then."""

    def __init__(self, clients: int, seconds: float, on_start: Callable[[], None]) -> None:
        self._barrier, self._seconds, self._on_start = asyncio.Barrier(clients), seconds, on_start
        self.began = self.end = 0.0

    async def wait(self) -> None:
        """Wait until all clients have arrived."""
        if await self._barrier.wait() == 0:
            self._on_start()
            self.began = time.perf_counter()
            self.end = self.began + self._seconds
        while not self.end:
            await asyncio.sleep(0)


Client = Callable[[int, int, dict[str, Any], dict[str, Any], Load, Start], Awaitable[None]]


async def http_client(
    index: int, port: int, reset: dict[str, Any], action: dict[str, Any], load: Load, start: Start
) -> None:
    """Play episodes over HTTP until the end of the measurement."""
    connection = HttpConnection(port)
    await connection.open()
    named = {"session_id": f"load-{index}"} if reset else {}
    status, body = await connection.post("/reset", {**reset, **named})
    await start.wait()
    while time.perf_counter() < start.end:
        for _ in range(STEPS_PER_EPISODE):
            started = time.perf_counter()
            if started >= start.end or status != 200:
                break
            status, body = await connection.post("/step", {"action": action, **named})
            load.latencies_s.append(time.perf_counter() - started)
        if status != 200:
            load.errors.append(body[:200].decode())
            break
        status, body = await connection.post("/reset", {**reset, **named})
    connection.close()


async def websocket_client(
    index: int, port: int, reset: dict[str, Any], action: dict[str, Any], load: Load, start: Start
) -> None:
    """Play episodes over OpenEnv's WebSocket until the end of the measurement."""
    step, first = json.dumps({"type": "step", "data": action}), json.dumps({"type": "reset", "data": reset})
    async with websockets.connect(f"ws://127.0.0.1:{port}/ws", compression=None) as socket:
        await socket.send(first)
        answer = str(await socket.recv())
        await start.wait()
        while time.perf_counter() < start.end:
            for _ in range(STEPS_PER_EPISODE):
                started = time.perf_counter()
                if started >= start.end:
                    break
                await socket.send(step)
                answer = str(await socket.recv())
                load.latencies_s.append(time.perf_counter() - started)
            if '"error"' in answer[:40]:
                load.errors.append(answer[:200])
                break
            await socket.send(first)
            answer = str(await socket.recv())


async def run_load(
    client: Client,
    port: int,
    sessions: int,
    seconds: float,
    reset: dict[str, Any],
    action: dict[str, Any],
    on_start: Callable[[], None] = lambda: None,
) -> Load:
    """Run all clients at once for some seconds."""
    load, start = Load(), Start(sessions, seconds, on_start)
    await asyncio.gather(
        *(client(index, port, _seeded(reset, index), action, load, start) for index in range(sessions))
    )
    load.seconds = time.perf_counter() - start.began
    return load


def _seeded(reset: dict[str, Any], index: int) -> dict[str, Any]:
    return {**reset, "seed": index} if reset else {}
