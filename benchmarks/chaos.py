"""Attack a server while honest clients play on it: `python -m benchmarks.chaos [--seconds 600] [--postgres] [--json]`.

A server is started as its users start it, with small limits for memory and disk. Honest clients step sessions from
127.0.0.1 and keep every answer; attackers come from other addresses of the loopback network. Between rounds the server
is killed, its store is locked by another program, its disk is full, and its clock jumps; over PostgreSQL, the database
goes away. In the end every acknowledged step is compared with an episode that nothing disturbed.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.bars import report_missed
from benchmarks.chaos_attacks import ATTACKS, Attack
from benchmarks.chaos_faults import SQLITE_FAULTS, Fault, faults_of
from benchmarks.chaos_honest import Honest, replayed_differently
from benchmarks.chaos_server import ChaosServer
from tools.postgres import Cluster, programs

HONEST_CLIENTS = 8
ERRORS = re.compile(r"^llmserve_errors_total (\S+)$", re.MULTILINE)
ROUND_S = 10.0
MAX_STEP_P99_MS = 250.0
MAX_HEALTH_S = 1.0
PROBE_INTERVAL_S = 0.25
KINDS = ("attack", "fault")
MEMORY_MB = 1_000
STORE_MB = 50


@dataclass
class Watch:
    """What was seen of the server from outside, all the time."""

    health_s: list[float] = field(default_factory=list)
    unhealthy: list[str] = field(default_factory=list)
    resident_mb: float = 0.0
    disk_mb: float = 0.0
    unexpected_errors: int = 0
    """As the server counts them, over HTTP and WebSockets; a life of the server begins at 0 again."""
    _errors_of_life: int = 0

    def look(self, server: ChaosServer, client: httpx.Client) -> None:
        """Ask for /health and measure."""
        started_s = time.perf_counter()
        try:
            status = client.get(f"{server.url}/health").status_code
            self.health_s.append(time.perf_counter() - started_s)
        except httpx.HTTPError as error:
            if server.is_up:
                self.unhealthy.append(type(error).__name__)
            return
        if status != 200:
            self.unhealthy.append(str(status))
        # After a start, all but /health waits for the application to load.
        with suppress(httpx.HTTPError):
            self._note_errors(client.get(f"{server.url}/metrics").text)
        self.resident_mb = max(self.resident_mb, server.resident_mb())
        self.disk_mb = max(self.disk_mb, server.disk_mb())

    def _note_errors(self, metrics: str) -> None:
        found = ERRORS.findall(metrics)
        counted = int(float(found[0])) if found else self._errors_of_life
        self.unexpected_errors += counted - (self._errors_of_life if counted >= self._errors_of_life else 0)
        self._errors_of_life = counted


class Watcher(threading.Thread):
    """Looks at the server until it is told to stop."""

    def __init__(self, server: ChaosServer, watch: Watch) -> None:
        super().__init__(daemon=True)
        self._server, self._watch, self._stop_now = server, watch, threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=10.0) as client:
            while not self._stop_now.wait(PROBE_INTERVAL_S):
                if self._server.is_up:
                    self._watch.look(self._server, client)

    def finish(self) -> None:
        self._stop_now.set()
        self.join()


def attack(server: ChaosServer, chosen: Attack, seconds: float) -> dict[str, Any]:
    """Run one attack for a while; what it tried and what came of it."""
    deadline_s = time.monotonic() + seconds
    tally = chosen.run(server.port, lambda: time.monotonic() < deadline_s)
    return {"attack": chosen.name, **tally}


def run(seconds: float, is_over_postgres: bool) -> dict[str, Any]:
    """All attacks and faults in turn, as often as there is time for."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(Cluster()) if is_over_postgres else None
        server = ChaosServer(folder, MEMORY_MB, STORE_MB, cluster.url if cluster else "")
        tried, honest, watch = play(server, seconds, faults_of(cluster) if cluster else SQLITE_FAULTS)
    return summary(honest, watch, tried, seconds)


def play(
    server: ChaosServer, seconds: float, faults: tuple[Fault, ...]
) -> tuple[list[dict[str, Any]], list[Honest], Watch]:
    """What was tried, what honest clients saw, and what was seen from outside."""
    watch = Watch()
    server.start()
    honest = [Honest(server, number) for number in range(HONEST_CLIENTS)]
    watcher = Watcher(server, watch)
    for thread in (*honest, watcher):
        thread.start()
    end_s = time.monotonic() + seconds
    tried: list[dict[str, Any]] = []
    steps: list[Attack | Fault] = [*ATTACKS, *faults]
    while time.monotonic() < end_s:
        for step in steps:
            if time.monotonic() >= end_s:
                break
            left_s = min(ROUND_S, end_s - time.monotonic())
            found = attack(server, step, left_s) if isinstance(step, Attack) else step.run(server)
            tried.append(found)
    for one in honest:
        one.finish()
    watcher.finish()
    server.stop()
    return tried, honest, watch


def summary(honest: list[Honest], watch: Watch, tried: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """The figures of a run."""
    latencies_ms = sorted(1e3 * took for one in honest for took in one.latencies_s)
    played = [session for one in honest for session in one.sessions]
    health_ms = sorted(1e3 * took for took in watch.health_s)
    return {
        "seconds": seconds,
        "tried": tried,
        "sessions": len(played),
        "acknowledged_steps": sum(len(session.answers) for session in played),
        "lost_or_different": replayed_differently(played),
        "honest_refused": sum((one.refused for one in honest), start=list[str]()),
        "answers_500": sum(one.num_500 for one in honest) + sum(one.get("500", 0) for one in tried),
        "unexpected_errors": watch.unexpected_errors,
        "step_p50_ms": _quantile(latencies_ms, 0.5),
        "step_p99_ms": _quantile(latencies_ms, 0.99),
        "health_p99_ms": _quantile(health_ms, 0.99),
        "health_max_ms": _quantile(health_ms, 1.0),
        "unhealthy": watch.unhealthy,
        "resident_mb": round(watch.resident_mb),
        "disk_mb": round(watch.disk_mb, 1),
    }


def _quantile(ordered: list[float], fraction: float) -> float:
    return round(ordered[min(int(fraction * len(ordered)), len(ordered) - 1)], 1) if ordered else 0.0


def missed(found: dict[str, Any]) -> list[str]:
    """Bars that do not hold."""
    bars = (
        (not found["lost_or_different"], f"steps lost or different: {found['lost_or_different']}"),
        (not found["answers_500"], f"{found['answers_500']} answers of 500"),
        (not found["unexpected_errors"], f"{found['unexpected_errors']} unexpected errors in the server's own count"),
        (not found["honest_refused"], f"honest clients were refused: {found['honest_refused'][:3]}"),
        (not found["unhealthy"], f"/health failed: {found['unhealthy'][:3]}"),
        (found["health_max_ms"] < 1e3 * MAX_HEALTH_S, f"/health took {found['health_max_ms']} ms"),
        (found["step_p99_ms"] < MAX_STEP_P99_MS, f"honest p99 step took {found['step_p99_ms']} ms"),
        (found["resident_mb"] < MEMORY_MB, f"{found['resident_mb']} MB resident of {MEMORY_MB}"),
        (found["disk_mb"] < STORE_MB, f"{found['disk_mb']} MB on disk of {STORE_MB}"),
    )
    return [text for holds, text in bars if not holds]


def as_text(found: dict[str, Any]) -> str:
    """What was tried, what held and what was lost."""
    tallies: dict[str, Counter[str]] = {}
    for one in found["tried"]:
        name, counts = one.get("attack") or one["fault"], {key: one[key] for key in one if key not in KINDS}
        tallies.setdefault(name, Counter()).update(counts)
    lines = [
        f"{name}: {', '.join(f'{count:,} {key}' for key, count in tally.items() if count)}"
        for name, tally in tallies.items()
    ]
    lines += [
        f"{found['seconds']:.0f} s, {HONEST_CLIENTS} honest clients: {found['sessions']} sessions, "
        f"{found['acknowledged_steps']:,} acknowledged steps, {len(found['lost_or_different'])} lost or different",
        f"honest steps: p50 {found['step_p50_ms']} ms, p99 {found['step_p99_ms']} ms, "
        f"{len(found['honest_refused'])} refused; {found['answers_500']} answers of 500 to anybody",
        f"/health: p99 {found['health_p99_ms']} ms, slowest {found['health_max_ms']} ms; "
        f"memory {found['resident_mb']} of {MEMORY_MB} MB, disk {found['disk_mb']} of {STORE_MB} MB",
    ]
    return "\n".join(lines)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Attack a server while honest clients play on it.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--postgres", action="store_true", help="over a throwaway PostgreSQL, which goes away at times")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.postgres and programs() is None:
        parser.error("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    found = run(asked.seconds, asked.postgres)
    print(json.dumps(found) if asked.json else as_text(found), flush=True)
    raise SystemExit(report_missed(missed(found)))


if __name__ == "__main__":
    main()
