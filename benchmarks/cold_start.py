"""How long a fresh environment takes to start: `python -m benchmarks.cold_start [--json]`, about a minute.

Every part runs in fresh processes with an empty kernel cache. The first is `gym.make`, `reset` and one `step`. The
second starts the server, asks `/health` every 50 ms from the moment it accepts connections until the first step over
HTTP is answered, and keeps the longest answer. The third does the same again with the kernels that the second compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from benchmarks.bars import report_missed
from benchmarks.markdown import markdown_table

BARS = {"gym_first_step_s": 15.0, "accepts_s": 3.0, "longest_health_s": 1.0}
POLL_INTERVAL_S = 0.05
TIMEOUT_S = 600.0
FIRST_STEP = """
import gymnasium, llmserve_env
environment = gymnasium.make("LLMServe/static_workload-v2")
environment.reset(seed=0)
environment.step(environment.action_space.sample())
"""


def gym_first_step_s(cache: str) -> float:
    """Seconds of a fresh process that makes an environment, resets it and steps once."""
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", FIRST_STEP], env={**os.environ, "NUMBA_CACHE_DIR": cache}, check=True)
    return time.perf_counter() - started_s


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def server(cache: str, port: int) -> Iterator[None]:
    """The `server` command as a process of its own."""
    variables = {"NUMBA_CACHE_DIR": cache, "LLMSERVE_STORE": "memory", "LLMSERVE_REQUESTS_PER_S": "0"}
    process = subprocess.Popen(
        [sys.executable, "-m", "llmserve_env.server.app", "--port", str(port), "--log-level", "warning"],
        env={**os.environ, **variables},
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def accepted_s(port: int, started_s: float) -> float:
    """Seconds since `started_s` until the port accepts a connection."""
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S):
                return time.perf_counter() - started_s
        except ConnectionRefusedError:
            time.sleep(0.005)


def first_step(url: str) -> None:
    """Reset and step once over HTTP; both wait for the simulator."""
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        client.post("/reset", json={"seed": 0}).raise_for_status()
        client.post("/step", json={"action": {}}).raise_for_status()


def health_answers_s(url: str, until: threading.Thread) -> list[float]:
    """Seconds of every answer of `/health` while the thread runs, each on a connection of its own."""
    answers = []
    while until.is_alive():
        started_s = time.perf_counter()
        httpx.get(f"{url}/health", timeout=TIMEOUT_S).raise_for_status()
        answers.append(time.perf_counter() - started_s)
        time.sleep(POLL_INTERVAL_S)
    return answers


def server_start(cache: str) -> dict[str, float]:
    """Seconds until the server accepts connections, until its first step, and of the longest `/health` in between."""
    port = free_port()
    started_s = time.perf_counter()
    with server(cache, port):
        accepts_s = accepted_s(port, started_s)
        stepping = threading.Thread(target=first_step, args=(f"http://127.0.0.1:{port}",))
        stepping.start()
        answers = health_answers_s(f"http://127.0.0.1:{port}", stepping)
        stepping.join()
        return {
            "accepts_s": round(accepts_s, 2),
            "first_step_s": round(time.perf_counter() - started_s, 2),
            "longest_health_s": round(max(answers), 3),
            "health_answers": len(answers),
        }


def measure() -> dict[str, Any]:
    """All parts, one after the other."""
    with tempfile.TemporaryDirectory() as cache:
        found: dict[str, Any] = {"gym_first_step_s": round(gym_first_step_s(cache), 2)}
    with tempfile.TemporaryDirectory() as cache:
        found["server_cold"] = server_start(cache)
        found["server_warm"] = server_start(cache)
    return found


def missed(found: dict[str, Any]) -> list[str]:
    """Bars that do not hold."""
    figures = {"gym": found, "server, empty cache": found["server_cold"], "server, warm cache": found["server_warm"]}
    return [
        f"{part}: {name} {row[name]} > {bar}"
        for part, row in figures.items()
        for name, bar in BARS.items()
        if row.get(name, 0.0) > bar
    ]


def as_table(found: dict[str, Any]) -> str:
    """All parts for a page."""
    rows = [["`gym.make`, `reset`, `step`", "empty", "–", f"{found['gym_first_step_s']:.1f}", "–"]]
    for name, cache in (("server_cold", "empty"), ("server_warm", "warm")):
        row = found[name]
        shown = [f"{row['accepts_s']:.1f}", f"{row['first_step_s']:.1f}", f"{row['longest_health_s']:.2f}"]
        rows.append(["server", cache, *shown])
    return markdown_table(
        ["start of", "kernel cache", "accepts after, s", "first step after, s", "longest `/health`, s"], rows
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Measure how long a fresh environment takes to start.")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure()
    print(json.dumps(found) if asked.json else as_table(found), flush=True)
    raise SystemExit(report_missed(missed(found)))


if __name__ == "__main__":
    main()
