"""Fleet tasks small enough to be played hundreds of times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import llmserve_env.fleet.task
from llmserve_env.fleet.decision import FleetDecision
from llmserve_env.fleet.series import load_series
from llmserve_env.fleet.task import FleetTask, parse_fleet_task
from llmserve_env.fleet.traffic import Traffic
from llmserve_env.tasks.files import read_mapping

DATA = Path(llmserve_env.fleet.task.__file__).parent / "data"


def fields_of(name: str) -> dict[str, Any]:
    """The fields of a shipped task, to be changed."""
    return read_mapping(DATA / f"{name}.yaml")


def small_task(name: str, steps: int = 24) -> FleetTask:
    """A shipped task with a tenth of its load, few replicas and quick launches, for minutes instead of hours."""
    data = fields_of(name)
    data["steps"] = steps
    data["traffic"]["mean_rps"] /= 10
    data["replica"]["max_running"] = 8
    for pool in data["pools"]:
        pool |= {"max_replicas": 4, "usual_replicas": 1, "max_asleep": 2, "min_replicas": 0}
        pool["boot"] |= {"median_s": 40.0, "failure_probability": 0.1}
    if "batch" in data:
        data["batch"] |= {"jobs_per_load": 20, "deadline_s": 200.0, "max_admission_rps": 2.0}
    for zone in data.get("zones", ()):
        zone["losses_per_day"] *= 40.0
    return parse_fleet_task(data)


def traffic_of(task: FleetTask, seed: int) -> Traffic:
    """An episode's world somewhere in the training week."""
    return task.traffic(load_series("servegen_m_small"), 3_600.0 * (seed % 100), seed)


def random_decision(task: FleetTask, rng: Any) -> FleetDecision:
    """Any decision of the task."""
    return FleetDecision(
        tuple(int(rng.integers(pool.min_replicas, pool.max_replicas + 1)) for pool in task.pools),
        tuple(int(rng.integers(0, pool.max_asleep + 1)) for pool in task.pools),
        float(rng.random()) if task.batch else 0.0,
        int(rng.choice([256, 2048, task.replica.token_budget])),
    )
