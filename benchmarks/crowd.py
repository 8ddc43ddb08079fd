"""What a crowd costs: `python -m benchmarks.crowd [--seconds 10] [--task ID ...] [--json]`, five minutes.

The same server, with its default memory, is stepped by 50 sessions and by 500, in turns, and the ratio of their steps
per second is what counts. Then 1,000 WebSockets are opened, each plays a few steps, and the memory of the process is
read. The sizes of episodes say how many sessions fit into a gigabyte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import websockets

from benchmarks.bars import report_missed
from benchmarks.load import http_client, run_load
from benchmarks.markdown import markdown_table
from benchmarks.server import ACTION, Served, serving
from llmserve_env.env.episode import Episode
from llmserve_env.server.episode_memory import Packed
from llmserve_env.tasks.catalog import BENCHMARK

FEW, MANY = 50, 500
MIN_RATIO = 0.6
TURNS = 3
WEBSOCKETS = 1_000
STEPS_EACH = 5
MAX_RESIDENT_MB = 2_000
OPENED_AT_ONCE = 50
LARGEST = "mooncake_agent"


def rates(served: Served, task_id: str, seconds: float) -> dict[str, Any]:
    """Steps per second of few and of many sessions, in turns."""
    found: dict[int, list[float]] = {FEW: [], MANY: []}
    errors: list[str] = []
    for _ in range(TURNS):
        for sessions, so_far in found.items():
            load = asyncio.run(run_load(http_client, served.port, sessions, seconds, {"task_id": task_id}, ACTION))
            so_far.append(load.steps_per_s)
            errors += load.errors
    ratio = statistics.median(many / few for few, many in zip(found[FEW], found[MANY], strict=True))
    medians = {str(sessions): round(statistics.median(so_far)) for sessions, so_far in found.items()}
    print(f"{task_id}: {medians} steps/s, ratio {ratio:.2f}", file=sys.stderr, flush=True)
    return {"steps_per_s": medians, "ratio": round(ratio, 2), "errors": len(errors)}


def sizes() -> dict[str, dict[str, float]]:
    """Memory of an episode after its first half, at hand and compressed, and the time to bring it back."""
    found = {}
    for task_id in (*BENCHMARK, LARGEST):
        episode, again = Episode(task_id), Episode(task_id)
        episode.reset(1)
        for _ in range(episode.task.steps // 2):
            episode.step(episode.task.knobs_from_mapping(ACTION))
        packed = Packed.of(episode)
        started_s = time.perf_counter()
        packed.unpack(again)
        took_ms = 1e3 * (time.perf_counter() - started_s)
        found[task_id] = {
            "live_mb": episode.num_bytes / 1e6,
            "packed_mb": packed.num_bytes / 1e6,
            "unpack_ms": took_ms,
        }
    return found


async def open_websockets(served: Served, count: int) -> dict[str, Any]:
    """The memory of the process while so many WebSockets are open, each with an episode under way."""
    reset, step = json.dumps({"type": "reset", "data": {}}), json.dumps({"type": "step", "data": ACTION})
    before_mb, errors = served.resident_mb(), 0
    async with AsyncExitStack() as stack:

        async def play(seed: int) -> int:
            socket = await stack.enter_async_context(
                websockets.connect(f"ws://127.0.0.1:{served.port}/ws", compression=None, open_timeout=None)
            )
            task_id = BENCHMARK[seed % len(BENCHMARK)]
            await socket.send(reset.replace("{}", json.dumps({"task_id": task_id, "seed": seed})))
            answers = [await socket.recv()]
            for _ in range(STEPS_EACH):
                await socket.send(step)
                answers.append(await socket.recv())
            return sum('"error"' in str(answer)[:40] for answer in answers)

        peak_mb = before_mb
        for start in range(0, count, OPENED_AT_ONCE):
            errors += sum(await asyncio.gather(*(play(start + n) for n in range(OPENED_AT_ONCE))))
            peak_mb = max(peak_mb, served.resident_mb())
    return {"open": count, "before_mb": round(before_mb), "resident_mb": round(peak_mb), "errors": errors}


def measure(seconds: float, task_ids: list[str]) -> dict[str, Any]:
    """Both parts, each on a fresh server."""
    with serving("server.app", "--port", "0") as served:
        found: dict[str, Any] = {"stepping": {task_id: rates(served, task_id, seconds) for task_id in task_ids}}
    crowd = {"LLMSERVE_MAX_WEBSOCKETS": str(WEBSOCKETS), "LLMSERVE_MAX_WEBSOCKETS_PER_CLIENT": str(WEBSOCKETS)}
    with serving("server.app", "--port", "0", **crowd) as served:
        found["websockets"] = asyncio.run(open_websockets(served, WEBSOCKETS))
    found["sizes"] = sizes()
    return found


def missed(found: dict[str, Any]) -> list[str]:
    """Bars that do not hold."""
    sockets, bars = found["websockets"], []
    for task_id, row in found["stepping"].items():
        bars += [f"{task_id}: {MANY} sessions step at {row['ratio']} of the rate of {FEW}"] * (row["ratio"] < MIN_RATIO)
        bars += [f"{task_id}: {row['errors']} errors"] * bool(row["errors"])
    bars += [f"{sockets['resident_mb']} MB with {sockets['open']} WebSockets"] * (
        sockets["resident_mb"] >= MAX_RESIDENT_MB
    )
    return bars + [f"{sockets['errors']} errors on WebSockets"] * bool(sockets["errors"])


def as_text(found: dict[str, Any]) -> str:
    """Both parts for a page."""
    rows = [
        [f"`{task_id}`", *(f"{rate:,}" for rate in row["steps_per_s"].values()), f"{row['ratio']:.2f}"]
        for task_id, row in found["stepping"].items()
    ]
    table = markdown_table(["task", f"{FEW} sessions, steps/s", f"{MANY} sessions, steps/s", "ratio"], rows)
    sockets = found["websockets"]
    fit = [
        [f"`{task_id}`", *(f"{row[name]:.2f}" for name in ("live_mb", "packed_mb")), f"{row['unpack_ms']:.1f}"]
        for task_id, row in found["sizes"].items()
    ]
    titles = ["task", "an episode, MB", "compressed, MB", "to bring it back, ms"]
    return (
        f"{table}\n\n{sockets['open']:,} open WebSockets, each with an episode: {sockets['resident_mb']:,} MB "
        f"({sockets['before_mb']:,} MB before).\n\n{markdown_table(titles, fit)}"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Measure what many sessions and WebSockets cost.")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each of the turns")
    parser.add_argument("--task", nargs="*", choices=BENCHMARK, default=list(BENCHMARK), help="to be stepped")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.seconds, asked.task)
    print(json.dumps(found) if asked.json else as_text(found), flush=True)
    raise SystemExit(report_missed(missed(found)))


if __name__ == "__main__":
    main()
