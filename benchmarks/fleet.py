"""How fast a fleet's episode is served: `python -m benchmarks.fleet [--task elastic_fleet] [--json]`, half a minute.

An episode of six hours is sampled, then played to its end with a rule of one line, repeatedly; the figures are CPU
seconds of one thread (`process_time`), the median over the repeats. Sampling the traffic is timed apart.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from dataclasses import replace
from typing import Any

from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.episode import FleetEpisode
from llmserve_env.fleet.observation import Observation
from llmserve_env.fleet.series import load_series
from llmserve_env.fleet.task import TASKS, FleetTask, load_fleet_task

BARS = {"decisions_per_s": 1_000.0, "episode_s": 0.8}
SERIES = "servegen_m_large"
HEADROOM = 1.4


def follow_rate(task: FleetTask, seen: Observation) -> FleetDecision:
    """The usual fleet in proportion to the rate, with headroom."""
    factor = HEADROOM * seen.request_rps / task.traffic_spec.mean_rps
    serving = tuple(
        min(max(math.ceil(pool.usual_replicas * factor), pool.min_replicas), pool.max_replicas) for pool in task.pools
    )
    return replace(task.default_decision(), serving=serving)


def nearest_start_s(task: FleetTask) -> float:
    """The training episode whose load is nearest to the task's mean."""
    series = load_series(SERIES)
    starts, whole = series.starts("train", task.length_s), series.rate_rps.mean()
    width = int(task.length_s // series.window_s)

    def distance(start_s: float) -> float:
        first = int(start_s // series.window_s)
        return abs(float(series.rate_rps[first : first + width].mean() / whole) - 1.0)

    return min(starts, key=distance)


def measure(task: FleetTask, repeats: int) -> dict[str, Any]:
    """Rates of one task."""
    began = time.process_time()
    traffic = task.traffic(load_series(SERIES), nearest_start_s(task), seed=0)
    sampled_s = time.process_time() - began
    episode, resets, plays = FleetEpisode(task, traffic), [], []
    for repeat in range(repeats + 1):
        began = time.process_time()
        seen, is_over = episode.reset(), False
        resets.append(time.process_time() - began)
        began = time.process_time()
        while not is_over:
            seen, _, is_over, details = episode.step(follow_rate(task, seen))
        plays.append(time.process_time() - began)
        if repeat == 0:
            # The first time compiles or loads the kernels and touches the memory.
            resets.clear()
            plays.clear()
    episode_s = statistics.median(plays)
    return {
        "task": task.id,
        "decisions_per_s": task.steps / episode_s,
        "episode_s": episode_s,
        "reset_s": statistics.median(resets),
        "sampling_s": sampled_s,
        "requests": len(traffic.requests),
        "mean_rps": float(traffic.arrivals.sum() / (traffic.num_windows * task.window_s)),
        "requests_per_s": len(traffic.requests) / episode_s,
        "attainment": details["attainment"],
        "gpu_hours": details["gpu_hours"],
    }


def main() -> None:
    """Print the figures, and the bars that they miss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, nargs="*", default=["elastic_fleet"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object per task")
    arguments = parser.parse_args()
    for name in arguments.task:
        found = measure(load_fleet_task(name), arguments.repeats)
        if arguments.json:
            print(json.dumps(found))
            continue
        print(
            f"{name}: {found['decisions_per_s']:,.0f} decisions/s, {found['episode_s']:.2f} s for "
            f"{found['requests']:,} requests at {found['mean_rps']:.1f} per second "
            f"({found['requests_per_s']:,.0f} requests/s); reset {found['reset_s']:.2f} s, "
            f"sampling {found['sampling_s']:.2f} s; attainment {found['attainment']:.4f}, "
            f"{found['gpu_hours']:.0f} GPU-hours"
        )


if __name__ == "__main__":
    main()
