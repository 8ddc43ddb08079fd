"""How fast the server is: `python -m benchmarks.server [--seconds 60] [--sessions 64] [--json]`, a quarter of an hour.

Two parts. One client plays a whole episode of every task over HTTP and over WebSocket: reset, 200 steps, grade. Then
many sessions step at once, and the same load goes to a trivial echo environment on OpenEnv's own server; both servers
take turns of a few seconds in the same run, and the ratio of their steps per second is what counts. The processor time
that each server spends on a step is printed beside it: where other programs share the machine, it says more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import report_missed
from benchmarks.load import Client, Load, http_client, run_load, websocket_client
from benchmarks.markdown import markdown_table
from llmserve_env.client import LLMServeEnv, LLMServeWSEnv
from llmserve_env.tasks.catalog import BENCHMARK

ACTION = {"batch_cap": 96, "kv_budget_fraction": 0.8}
BARS_S = {"http": 2.0, "websocket": 1.5}
BARRED_TASKS = ("static_workload", "bursty_workload")
"""Tasks whose load must keep up with the echo; the others' is printed."""
MIN_RATIO = 0.7
TURNS = 5
WARM_UP_S = 1.0
WARM_UP_SESSIONS = 4


@dataclass(frozen=True, slots=True)
class Served:
    """A server as a process of its own."""

    pid: int
    port: int

    def cpu_s(self) -> float:
        """Processor time it has used, of all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Memory that it occupies now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def serving(module: str, *arguments: str, **chosen: str) -> Iterator[Served]:
    """Start a server, with these variables; sessions go to a file of their own."""
    limited = ("REQUESTS_PER_S", "STEPS_PER_S", "EXPENSIVE_PER_MIN")
    variables = {f"LLMSERVE_{name}": "0" for name in limited}
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={
                **os.environ,
                **variables,
                "LLMSERVE_DATA_DIR": folder,
                "LLMSERVE_LOG_REQUESTS": "false",
                "LLMSERVE_OPENENV_CONSOLE": "false",
                **chosen,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if "open http" in line)
            # What it says from here on must be read too, or it would wait for a reader.
            threading.Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
            yield Served(process.pid, int(line.rsplit(":", 1)[1].split("/")[0]))
        finally:
            process.terminate()
            process.wait()


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
    """The slowest of three whole episodes, per task and transport, after one that loads the kernels."""
    plays = {"http": http_episode, "websocket": websocket_episode}
    http_episode(url, BENCHMARK[0])
    return {
        task: {name: round(max(play(url, task) for _ in range(3)), 3) for name, play in plays.items()}
        for task in BENCHMARK
    }


@dataclass(slots=True)
class Side:
    """One of the two servers, and all its turns together."""

    served: Served
    reset: dict[str, Any]
    action: dict[str, Any]
    load: Load
    cpu_s: float = 0.0

    def turn(self, client: Client, sessions: int, seconds: float) -> float:
        """Steps per second of one turn."""
        before: list[float] = []
        port = self.served.port

        def note() -> None:
            before.append(self.served.cpu_s())

        part = asyncio.run(run_load(client, port, sessions, seconds, self.reset, self.action, note))
        self.cpu_s += self.served.cpu_s() - before[0]
        self.load.latencies_s += part.latencies_s
        self.load.errors += part.errors
        self.load.seconds += part.seconds
        return part.steps_per_s

    def figures(self) -> dict[str, float]:
        """What the clients saw, and what it cost the server."""
        return {
            "steps_per_s": round(self.load.steps_per_s),
            "p50_ms": round(self.load.quantile_ms(0.5), 1),
            "p99_ms": round(self.load.quantile_ms(0.99), 1),
            "cpu_us_per_step": round(1e6 * self.cpu_s / len(self.load.latencies_s)),
            "errors": len(self.load.errors),
        }


def compare(client: Client, ours: Side, echo: Side, sessions: int, seconds: float) -> dict[str, Any]:
    """The same load on our server and on the echo, in turns."""
    ratios = []
    for _ in range(TURNS):
        mine = ours.turn(client, sessions, seconds / TURNS)
        ratios.append(mine / echo.turn(client, sessions, seconds / TURNS))
    found, other = ours.figures(), echo.figures()
    return {
        **found,
        **{f"echo_{name}": value for name, value in other.items()},
        "ratio": round(statistics.median(ratios), 2),
        "cpu_ratio": round(other["cpu_us_per_step"] / found["cpu_us_per_step"], 2),
    }


def loads(served: Served, echo: Served, sessions: int, seconds: float) -> dict[str, Any]:
    """Every task over both transports."""
    clients = {"http": http_client, "websocket": websocket_client}
    found: dict[str, Any] = {}
    for task in BENCHMARK:
        found[task] = {}
        for name, client in clients.items():
            sides = Side(served, {"task_id": task}, ACTION, Load()), Side(echo, {}, {"message": "hello"}, Load())
            for side in sides:
                asyncio.run(run_load(client, side.served.port, WARM_UP_SESSIONS, WARM_UP_S, side.reset, side.action))
            found[task][name] = compare(client, *sides, sessions, seconds)
    return found


def measure(sessions: int, seconds: float) -> dict[str, Any]:
    """Both parts."""
    with serving("server.app", "--port", "0") as served, serving("benchmarks.echo_server") as echo:
        found: dict[str, Any] = {"episode_s": episodes(f"http://127.0.0.1:{served.port}")}
        found["load"] = loads(served, echo, sessions, seconds)
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
    rows = [(task, name, row) for task, by_name in found["load"].items() for name, row in by_name.items()]
    failed = [(task, name, row["errors"] + row["echo_errors"]) for task, name, row in rows]
    slow += [f"{task} over {name}: {errors} errors" for task, name, errors in failed if errors]
    return slow + [
        f"{task} over {name}: ratio {row['ratio']} < {MIN_RATIO}"
        for task, name, row in rows
        if task in BARRED_TASKS and row["ratio"] < MIN_RATIO
    ]


def as_table(found: dict[str, Any]) -> str:
    """Both parts for a page."""
    load = ["steps/s", "p50, ms", "p99, ms", "CPU, µs/step", "echo's steps/s", "ratio"]
    rows = []
    for task, by_name in found["load"].items():
        for name, row in by_name.items():
            speeds = [f"{row['steps_per_s']:,}", row["p50_ms"], row["p99_ms"], row["cpu_us_per_step"]]
            echo = [f"{row['echo_steps_per_s']:,}", f"{row['ratio']:.2f}"]
            rows.append([f"`{task}`", name, f"{found['episode_s'][task][name]:.2f}", *map(str, speeds), *echo])
    failed = sum(row["errors"] + row["echo_errors"] for by_name in found["load"].values() for row in by_name.values())
    shown = markdown_table(["task", "transport", "one episode, s", *load], rows)
    return f"{shown}\n\n{found['sessions']} sessions, {found['seconds']:.0f} s per row and server, {failed} errors."


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Measure the server.")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load per task, transport and server")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.sessions, asked.seconds)
    print(json.dumps(found) if asked.json else as_table(found), flush=True)
    raise SystemExit(report_missed(missed(found)))


if __name__ == "__main__":
    main()
