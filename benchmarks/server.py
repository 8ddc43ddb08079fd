"""How fast the server is: `python -m benchmarks.server [--seconds 60] [--sessions 64] [--json]`.

Two parts. One client plays a whole episode of every task over HTTP and over WebSocket: reset, 200 steps, grade. Then
many sessions step at once, and the same load goes to a trivial echo environment on OpenEnv's own server; both servers
take turns of a few seconds in the same run, and the ratio of their steps per second is what counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.load import Client, Load, http_client, run_load, websocket_client
from llmserve_env.client import LLMServeEnv, LLMServeWSEnv
from llmserve_env.tasks.catalog import BENCHMARK

ACTION = {"batch_cap": 96, "kv_budget_fraction": 0.8}
BARS_S = {"http": 2.0, "websocket": 1.5}
LOADED_TASKS = ("static_workload", "bursty_workload")
MIN_RATIO = 0.7
TURNS = 5


@contextmanager
def serving(module: str, *arguments: str) -> Iterator[int]:
    """A server as a process of its own; its port."""
    variables = {f"LLMSERVE_{name}": "0" for name in ("REQUESTS_PER_S", "STEPS_PER_S", "EXPENSIVE_PER_MIN")}
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **variables, "LLMSERVE_LOG_REQUESTS": "false", "LLMSERVE_OPENENV_CONSOLE": "false"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if "open http" in line)
        yield int(line.rsplit(":", 1)[1].split("/")[0])
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def http_episode(url: str, task_id: str) -> float:
    """Seconds of reset, all steps and the grade."""
    with LLMServeEnv.from_url(url) as env:
        env.tasks()
        started = time.perf_counter()
        observation = env.reset(task_id=task_id, seed=42)
        while not observation.done:
            observation, *_ = env.step(ACTION)
        env.grade()
        return time.perf_counter() - started


def websocket_episode(url: str, task_id: str) -> float:
    """Seconds of connecting, reset, all steps and the score in the state."""
    started = time.perf_counter()
    with LLMServeWSEnv(url).sync() as env:
        result = env.reset(task_id=task_id, seed=42)
        while not result.done:
            result = env.step(ACTION)
        env.state()
        return time.perf_counter() - started


def episodes(url: str) -> dict[str, dict[str, float]]:
    """The slowest of three whole episodes, per task and transport."""
    plays = {"http": http_episode, "websocket": websocket_episode}
    return {
        task: {name: round(max(play(url, task) for _ in range(3)), 3) for name, play in plays.items()}
        for task in BENCHMARK
    }


def compare(client: Client, ports: tuple[int, int], sessions: int, seconds: float, task_id: str) -> dict[str, Any]:
    """The same load on our server and on the echo, in turns."""
    ours, echoes = Load(), Load()
    ratios = []
    for _ in range(TURNS):
        mine = asyncio.run(run_load(client, ports[0], sessions, seconds / TURNS, {"task_id": task_id}, ACTION))
        echo = asyncio.run(run_load(client, ports[1], sessions, seconds / TURNS, {}, {"message": "hello"}))
        ratios.append(mine.steps_per_s / echo.steps_per_s)
        for total, part in ((ours, mine), (echoes, echo)):
            total.latencies_s += part.latencies_s
            total.errors += part.errors
            total.seconds += part.seconds
    return {
        "steps_per_s": round(ours.steps_per_s),
        "p50_ms": round(ours.quantile_ms(0.5), 1),
        "p99_ms": round(ours.quantile_ms(0.99), 1),
        "errors": len(ours.errors) + len(echoes.errors),
        "echo_steps_per_s": round(echoes.steps_per_s),
        "echo_p99_ms": round(echoes.quantile_ms(0.99), 1),
        "ratio": round(statistics.median(ratios), 2),
    }


def measure(sessions: int, seconds: float) -> dict[str, Any]:
    """Both parts."""
    clients = {"http": http_client, "websocket": websocket_client}
    with serving("server.app", "--port", "0") as port, serving("benchmarks.echo_server") as echo:
        found: dict[str, Any] = {"episode_s": episodes(f"http://127.0.0.1:{port}"), "load": {}}
        for task in LOADED_TASKS:
            found["load"][task] = {
                name: compare(client, (port, echo), sessions, seconds, task) for name, client in clients.items()
            }
    found["sessions"], found["seconds"] = sessions, seconds
    return found


def missed(found: dict[str, Any]) -> list[str]:
    """Bars that do not hold."""
    slow = [
        f"{task} over {name}: {took} s > {BARS_S[name]} s"
        for task, by_name in found["episode_s"].items()
        for name, took in by_name.items()
        if took > BARS_S[name]
    ]
    loads = [(task, name, row) for task, rows in found["load"].items() for name, row in rows.items()]
    slow += [f"{task} over {name}: {row['errors']} errors" for task, name, row in loads if row["errors"]]
    return slow + [
        f"{task} over {name}: ratio {row['ratio']} < {MIN_RATIO}"
        for task, name, row in loads
        if row["ratio"] < MIN_RATIO
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Measure the server.")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load per task, transport and server")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.sessions, asked.seconds)
    print(json.dumps(found, indent=None if asked.json else 2))
    for bar in missed(found):
        print(f"missed: {bar}", file=sys.stderr)
    raise SystemExit(bool(missed(found)))


if __name__ == "__main__":
    main()
