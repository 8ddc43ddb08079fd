"""A day of load in minutes: `python -m benchmarks.soak [--hours 24] [--scale 240] [--json]`, six minutes as it stands.

The server runs with a clock that is `scale` times as fast, and with idle times that are as much shorter. Clients play
over HTTP, over WebSockets and through `/mcp`, and leave without a word; others send half a request or nonsense. Memory,
descriptors, threads and disk are read all the time. The first quarter of the day fills caches and the store; after
that, the last quarter may not need more than the second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import websockets

from benchmarks.bars import report_missed
from benchmarks.chaos_attacks import HOSTILE, MCP_CREATE
from benchmarks.chaos_server import size_mb
from benchmarks.load import HttpConnection
from benchmarks.markdown import markdown_table
from benchmarks.server import ACTION, Served, serving
from llmserve_env.tasks.catalog import BENCHMARK

MEMORY_MB, STORE_MB = 700, 32
SESSION_IDLE_S, WEBSOCKET_IDLE_S, MCP_IDLE_S = 14_400.0, 3_600.0, 300.0
"""Before they are divided by the scale."""
MIN_SESSION_IDLE_S = 60.0
SAMPLE_S = 0.5
MAX_STEPS = 60
GROWTH = {"resident_mb": 25.0, "descriptors": 20.0, "threads": 4.0, "disk_mb": 2.0}
"""By how much the last quarter of the day may exceed the second; the store is cut back in steps of a few sessions."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The process at one moment of the simulated day."""

    hour: float
    resident_mb: float
    descriptors: float
    threads: float
    disk_mb: float


def sample(served: Served, folder: Path, hour: float) -> Sample:
    """What the system says about the server now."""
    process = Path(f"/proc/{served.pid}")
    descriptors, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
    return Sample(hour, served.resident_mb(), descriptors, threads, size_mb(folder))


async def play_http(port: int, rng: random.Random) -> int:
    """A session over HTTP that is left at some step."""
    connection = HttpConnection(port)
    await connection.open()
    task_id, steps = rng.choice(BENCHMARK), rng.randrange(MAX_STEPS)
    status, body = await connection.post("/reset", {"task_id": task_id, "seed": rng.randrange(10**6)})
    name = json.loads(body)["session_id"] if status == 200 else ""
    for _ in range(steps if name else 0):
        await connection.post("/step", {"session_id": name, "action": ACTION})
    connection.close()
    return steps


async def play_websocket(port: int, rng: random.Random) -> int:
    """A session over a WebSocket whose client goes away without closing it."""
    socket = await websockets.connect(f"ws://127.0.0.1:{port}/ws", compression=None)
    steps = rng.randrange(MAX_STEPS)
    first = {"type": "reset", "data": {"task_id": rng.choice(BENCHMARK), "seed": rng.randrange(10**6)}}
    for message in (first, *({"type": "step", "data": ACTION} for _ in range(steps))):
        await socket.send(json.dumps(message))
        await socket.recv()
    socket.transport.abort()
    return steps


async def use_mcp(port: int, rng: random.Random) -> int:
    """A session of `/mcp` that nobody closes."""
    connection = HttpConnection(port)
    await connection.open()
    _, body = await connection.post("/mcp", MCP_CREATE)
    session_id = json.loads(body).get("result", {}).get("session_id", "")
    call = {"session_id": session_id, "name": "set_knobs", "arguments": {"batch_cap": rng.randrange(1, 64)}}
    await connection.post("/mcp", {**MCP_CREATE, "method": "tools/call", "params": call})
    connection.close()
    await asyncio.sleep(0.2)
    return 1


async def disturb(port: int, rng: random.Random) -> int:
    """Half a request, and one that is none."""
    _, half = await asyncio.open_connection("127.0.0.1", port)
    half.write(b"POST /step HTTP/1.1\r\nhost: x\r\n")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
        path, body = rng.choice(HOSTILE)
        await client.post(path, content=body)
        await client.get(f"/no-such-page/{rng.randrange(10**6)}")
    await asyncio.sleep(0.1)
    if rng.random() < 0.5:
        half.close()
    return 0


CLIENTS: tuple[tuple[str, int, Callable[[int, random.Random], Awaitable[int]]], ...] = (
    ("HTTP sessions", 4, play_http),
    ("WebSockets", 2, play_websocket),
    ("sessions of /mcp", 1, use_mcp),
    ("disturbances", 1, disturb),
)


async def load(served: Served, folder: Path, hours: float, scale: float) -> dict[str, Any]:
    """All clients at once for the whole day, and the samples taken meanwhile."""
    began_s, samples = time.monotonic(), list[Sample]()
    done, steps = dict.fromkeys((name for name, *_ in CLIENTS), 0), 0

    def hour() -> float:
        return (time.monotonic() - began_s) * scale / 3_600.0

    async def repeat(name: str, number: int, play: Callable[[int, random.Random], Awaitable[int]]) -> None:
        nonlocal steps
        for turn in itertools.count():
            if hour() >= hours:
                return
            steps += await play(served.port, random.Random(f"{name} {number} {turn}"))
            done[name] += 1

    async def watch() -> None:
        while hour() < hours:
            samples.append(sample(served, folder, hour()))
            await asyncio.sleep(SAMPLE_S)

    clients = (repeat(name, number, play) for name, count, play in CLIENTS for number in range(count))
    await asyncio.gather(watch(), *clients)
    return {"hours": hours, "done": done, "steps": steps, "samples": [asdict(one) for one in samples]}


def measure(hours: float, scale: float) -> dict[str, Any]:
    """A day on a fresh server."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = {
            "LLMSERVE_DATA_DIR": folder,
            "LLMSERVE_MEMORY_MB": str(MEMORY_MB),
            "LLMSERVE_STORE_MB": str(STORE_MB),
            "LLMSERVE_SESSION_IDLE_S": str(max(SESSION_IDLE_S / scale, MIN_SESSION_IDLE_S)),
            "LLMSERVE_WEBSOCKET_IDLE_S": str(WEBSOCKET_IDLE_S / scale),
            "LLMSERVE_MCP_IDLE_S": str(MCP_IDLE_S / scale),
            "LLMSERVE_HEADER_TIMEOUT_S": "2",
        }
        with serving("benchmarks.soak_server", str(scale), "--port", "0", **chosen) as served:
            httpx.post(f"http://127.0.0.1:{served.port}/reset", json={}, timeout=600.0).raise_for_status()
            found = asyncio.run(load(served, Path(folder), hours, scale))
    return {**found, "quarters": quarters(found["samples"], hours)}


def quarters(samples: list[dict[str, float]], hours: float) -> dict[str, list[float]]:
    """The most of everything in each quarter of the day."""
    found = {}
    for name in GROWTH:
        parts = [[one[name] for one in samples if int(4 * one["hour"] / hours) == part] for part in range(4)]
        found[name] = [round(max(part, default=0.0), 1) for part in parts]
    return found


def missed(found: dict[str, Any]) -> list[str]:
    """What has grown beyond its line, or stands above its setting."""
    bars = [
        f"{name} grew from {most[1]:g} to {most[3]:g}, by more than {GROWTH[name]:g}"
        for name, most in found["quarters"].items()
        if most[3] - most[1] > GROWTH[name]
    ]
    for name, limit in (("resident_mb", MEMORY_MB), ("disk_mb", STORE_MB)):
        bars += [f"{name} {max(found['quarters'][name]):g} of {limit}"] * (max(found["quarters"][name]) >= limit)
    return bars


def as_text(found: dict[str, Any]) -> str:
    """The day for a page."""
    names = {"resident_mb": "memory, MB", "descriptors": "descriptors", "threads": "threads", "disk_mb": "disk, MB"}
    rows = [[names[name], *(f"{most:g}" for most in found["quarters"][name]), f"{GROWTH[name]:g}"] for name in GROWTH]
    titles = ["most of", "1st quarter", "2nd", "3rd", "4th", "allowed growth, 2nd to 4th"]
    counts = ", ".join(f"{count:,} {name}" for name, count in found["done"].items())
    return f"{markdown_table(titles, rows)}\n\n{found['hours']:g} hours, {found['steps']:,} steps: {counts}."


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="A day of load on a server with a faster clock.")
    parser.add_argument("--hours", type=float, default=24.0, help="simulated")
    parser.add_argument("--scale", type=float, default=240.0, help="simulated seconds per second")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.hours, asked.scale)
    print(json.dumps(found) if asked.json else as_text(found), flush=True)
    raise SystemExit(report_missed(missed(found)))


if __name__ == "__main__":
    main()
