"""The attacks of `benchmarks.chaos`. Each comes from an address of its own and goes on until its time is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from benchmarks.chaos_connections import (
    dripping_bodies,
    endless,
    floods,
    half_open,
    hoarded_sockets,
    many_connections,
)
from benchmarks.chaos_sockets import GoOn

Ask = Callable[[httpx.Client, int], httpx.Response]
MCP_CREATE = {"jsonrpc": "2.0", "id": 1, "method": "openenv/session/create", "params": {}}
HOSTILE: tuple[tuple[str, bytes], ...] = (
    ("/mcp", b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "tools/list"}'),
    ("/mcp", b'{"jsonrpc": "2.0", "id": 1, "method": "openenv/session/close", "params": {"session_id": [1]}}'),
    ("/step", b'{"action": ' + b"[" * 100_000),
    ("/step", b'{"session_id": "\\ud800", "action": {}}'),
    ("/reset", b'{"seed": 1e999}'),
    ("/grader", b'{"episode_log": {"task_id": "../x", "seed": 1, "actions": []}}'),
)


@dataclass(frozen=True)
class Attack:
    """A way to do harm: `run(port, go_on)` counts what it tried and what came of it."""

    name: str
    run: Callable[[int, GoOn], dict[str, int]]


def _client(port: int, address: str) -> httpx.Client:
    way = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=way, timeout=30.0)


def _ask_until(
    port: int, address: str, go_on: GoOn, ask: Callable[[httpx.Client, int], httpx.Response]
) -> dict[str, int]:
    """Statuses of requests sent one after the other."""
    statuses: Counter[str] = Counter()
    number = 0
    with _client(port, address) as client:
        while go_on():
            try:
                statuses[str(ask(client, number).status_code)] += 1
            except httpx.HTTPError:
                statuses["cut off"] += 1
            number += 1
    return dict(statuses)


def resets(port: int, go_on: GoOn) -> dict[str, int]:
    """Fill the store."""
    return _ask_until(port, "127.0.1.1", go_on, lambda client, n: client.post("/reset", json={"seed": n}))


def large_episodes(port: int, go_on: GoOn) -> dict[str, int]:
    """Fill the memory."""
    body = {"task_id": "mooncake_agent"}
    return _ask_until(port, "127.0.1.2", go_on, lambda client, n: client.post("/reset", json={**body, "seed": n}))


def replays(port: int, go_on: GoOn) -> dict[str, int]:
    """Ask for the state of many sessions in turn."""
    names: list[str] = []

    def begin(client: httpx.Client, number: int) -> httpx.Response:
        answer = client.post("/reset", json={"task_id": 2, "seed": number})
        names.extend([answer.json()["session_id"]] if answer.status_code == 200 else [])
        return answer

    _ask_until(port, "127.0.1.3", lambda: len(names) < 300 and go_on(), begin)
    if not names:
        return {"sessions": 0}

    def ask(client: httpx.Client, number: int) -> httpx.Response:
        return client.get("/state", params={"session_id": names[number % len(names)]})

    return _ask_until(port, "127.0.1.3", go_on, ask)


def mcp_sessions(port: int, go_on: GoOn) -> dict[str, int]:
    """Take all sessions of /mcp."""
    return _ask_until(port, "127.0.1.4", go_on, lambda client, _: client.post("/mcp", json=MCP_CREATE))


def hostile_bodies(port: int, go_on: GoOn) -> dict[str, int]:
    """Send what nobody should have to parse."""

    def ask(client: httpx.Client, number: int) -> httpx.Response:
        path, body = HOSTILE[number % len(HOSTILE)]
        return client.post(path, content=body, headers={"content-type": "application/json"})

    return _ask_until(port, "127.0.1.5", go_on, ask)


def forged_addresses(port: int, go_on: GoOn) -> dict[str, int]:
    """Pretend to be many clients."""

    def ask(client: httpx.Client, number: int) -> httpx.Response:
        return client.get(
            "/tasks", headers={"x-forwarded-for": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"}
        )

    return _ask_until(port, "127.0.1.6", go_on, ask)


def foreign_sessions(port: int, go_on: GoOn) -> dict[str, int]:
    """Step whatever session the server would give away; a 200 is a session of somebody else."""
    names: tuple[dict[str, str], ...] = ({}, {"session_id": "load-1"}, {"session_id": "validate-1"})

    def ask(client: httpx.Client, number: int) -> httpx.Response:
        return client.post("/step", json={"action": {}, **names[number % len(names)]})

    return _ask_until(port, "127.0.1.7", go_on, ask)


def uploads(port: int, go_on: GoOn) -> dict[str, int]:
    """Leave files on the server's disk, through OpenEnv's page."""
    files = {"files": ("x.bin", b"x" * 500_000)}
    path = "/openenv/web/gradio_api/upload"
    return _ask_until(port, "127.0.1.11", go_on, lambda client, _: client.post(path, files=files))


def paid_baselines(port: int, go_on: GoOn) -> dict[str, int]:
    """Let the operator's language model play."""
    asked = {"task_id": "static_workload", "use_openai": "true"}
    return _ask_until(port, "127.0.1.12", go_on, lambda client, _: client.get("/baseline", params=asked))


def planners(port: int, go_on: GoOn) -> dict[str, int]:
    """Let agents that play on copies of the simulator play in one session after the other."""

    def ask(client: httpx.Client, number: int) -> httpx.Response:
        begun = client.post("/reset", json={"task_id": 3, "seed": number})
        if begun.status_code != 200:
            return begun
        return client.post("/play", json={"session_id": begun.json()["session_id"], "agent": "planner"})

    return _ask_until(port, "127.0.1.15", go_on, ask)


def long_logs(port: int, go_on: GoOn) -> dict[str, int]:
    """Logs with as many mistakes as fit into a body."""
    log = b'{"task_id": 1, "episode_log": [' + b"{}," * 300_000 + b"{}]}"
    return _ask_until(port, "127.0.1.16", go_on, lambda client, _: client.post("/grader", content=log))


ATTACKS = (
    Attack("resets without end", resets),
    Attack("large episodes", large_episodes),
    Attack("states of 300 sessions", replays),
    Attack("sessions of /mcp", mcp_sessions),
    Attack("hostile bodies", hostile_bodies),
    Attack("forged addresses", forged_addresses),
    Attack("sessions of others", foreign_sessions),
    Attack("half-sent headers", half_open),
    Attack("floods of messages", floods),
    Attack("hoarded WebSockets", hoarded_sockets),
    Attack("uploads", uploads),
    Attack("paid baselines", paid_baselines),
    Attack("dripping bodies", dripping_bodies),
    Attack("what has no end", endless),
    Attack("planning agents", planners),
    Attack("logs full of mistakes", long_logs),
    Attack("requests over a thousand connections", many_connections),
)
