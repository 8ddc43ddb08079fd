"""Check every endpoint of a running server: `python tools/check_endpoints.py http://127.0.0.1:7860`.

Waits for the server to come up, plays a short episode over HTTP and over WebSocket, and prints a line per check.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import httpx

from llmserve_env.client import LLMServeEnv, LLMServeWSEnv
from llmserve_env.errors import LLMServeError

PAGES = ("/health", "/metadata", "/schema", "/info", "/tasks", "/runtime", "/agents", "/metrics", "/web", "/demo", "/")
START_TIMEOUT_S = 300.0
ACTION = {"batch_cap": 96}
PLAYED_STEPS = 5
FAILURES = (httpx.HTTPError, LLMServeError, AssertionError, OSError, RuntimeError, LookupError, ValueError)


def wait_for(url: str, timeout_s: float = START_TIMEOUT_S) -> float:
    """Wait until /health says that the server is ready, and return the seconds it took."""
    started = time.monotonic()
    while True:
        try:
            if httpx.get(f"{url}/health", timeout=5.0).json()["ready"]:
                return time.monotonic() - started
        except (httpx.HTTPError, ValueError):
            if time.monotonic() - started > timeout_s:
                raise
        if time.monotonic() - started > timeout_s:
            raise SystemExit(f"{url} is still warming up after {timeout_s:g} s")
        time.sleep(0.2)


def check_pages(url: str) -> str:
    """Request every page that needs no session."""
    for page in PAGES:
        answer = httpx.get(f"{url}{page}", follow_redirects=True, timeout=30.0)
        if answer.status_code != 200:
            raise AssertionError(f"GET {page} answered {answer.status_code}")
    return f"{len(PAGES)} pages"


def check_empty_reset(url: str) -> str:
    """Check that `{}` is enough to start an episode."""
    answer = httpx.post(f"{url}/reset", json={}, timeout=30.0)
    answer.raise_for_status()
    return f"session {answer.json()['session_id']}"


def check_http(url: str) -> str:
    """Play the README's example and grade it."""
    with LLMServeEnv.from_url(url) as env:
        observation = env.reset(task_id="static_workload", seed=42)
        while not observation.done:
            observation, *_ = env.step(ACTION)
        return f"score {env.grade().score:.3f}"


def check_websocket(url: str) -> str:
    """Play with OpenEnv's client."""
    with LLMServeWSEnv(url).sync() as env:
        env.reset(task_id="bursty_workload", seed=42)
        steps = [env.step(ACTION).observation.step_index for _ in range(3)]
        if steps != [1, 2, 3]:
            raise AssertionError(f"steps were numbered {steps}")
    return "3 steps"


def check_agents(url: str) -> str:
    """Check that every available agent plays and that every listed task can be played."""
    tasks = [task["id"] for task in httpx.get(f"{url}/tasks", timeout=60.0).raise_for_status().json()["tasks"]]
    played: dict[str, int] = {}
    for task in tasks:
        agents = httpx.get(f"{url}/agents", params={"task_id": task}, timeout=120.0).raise_for_status().json()
        for agent in (one["name"] for one in agents if one["is_available"]):
            session = httpx.post(f"{url}/reset", json={"task_id": task, "seed": 7}, timeout=120.0).raise_for_status()
            body = {"session_id": session.json()["session_id"], "agent": agent, "steps": PLAYED_STEPS}
            httpx.post(f"{url}/play", json=body, timeout=120.0).raise_for_status()
            played[agent] = played.get(agent, 0) + 1
    return f"{len(tasks)} tasks ({', '.join(tasks)}); " + ", ".join(f"{name} {n}" for name, n in played.items())


def check_baseline(url: str) -> str:
    """Request the deterministic baseline."""
    results: dict[str, Any] = httpx.get(f"{url}/baseline", timeout=120.0).raise_for_status().json()["results"]
    return ", ".join(f"{task} {grades['heuristic']['score']:.3f}" for task, grades in results.items())


CHECKS: dict[str, Callable[[str], str]] = {
    "pages": check_pages,
    "reset without arguments": check_empty_reset,
    "an episode over HTTP": check_http,
    "steps over WebSocket": check_websocket,
    "agents on every task": check_agents,
    "baseline": check_baseline,
}


def main() -> int:
    """Run all checks."""
    parser = argparse.ArgumentParser(description="Check every endpoint of a running server.")
    parser.add_argument("url")
    url = parser.parse_args().url.rstrip("/")
    print(f"ok   server ready after {wait_for(url):.1f} s")
    failed = 0
    for name, check in CHECKS.items():
        try:
            print(f"ok   {name}: {check(url)}")
        except FAILURES as error:
            failed += 1
            print(f"FAIL {name}: {type(error).__name__}: {error}", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
