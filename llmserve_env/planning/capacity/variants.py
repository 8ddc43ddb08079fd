"""The same task on another fleet or under other traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.defaults import MEMORY_UTILISATION
from llmserve_env.tasks.task import Task, parse_task
from llmserve_env.units import bytes_to_gb
from llmserve_env.workloads import schedule

RATE_SEEDS = range(32)


def with_changes(task: Task, **sections: Mapping[str, Any]) -> Task:
    """The task with some fields of its sections replaced; it has no file, because none says so."""
    data = task.model_dump(by_alias=True)
    for section, changes in sections.items():
        data[section] = {**data[section], **changes}
    return parse_task(data, task.id)


def on_fleet(task: Task, replicas: int, profile: str | None = None) -> Task:
    """So many replicas, all of them serving; on another GPU with the share of its memory that vLLM takes."""
    active = [name for name in task.knobs.active if name != "prefill_decode_split"]
    deployment: dict[str, Any] = {"replicas": replicas, "prefill_replicas": 0}
    if profile is not None and profile != task.deployment.profile:
        card_gb = bytes_to_gb(load_profile(profile).gpu.memory_bytes)
        deployment |= {"profile": profile, "memory_limit_gb": round(MEMORY_UTILISATION * card_gb, 1)}
        # A price in the task is that of its own GPU.
        deployment["price_usd_per_hour"] = None
    return with_changes(task, deployment=deployment, knobs={"active": active})


def at_load(task: Task, factor: float) -> Task:
    """The same traffic at so many times its rate."""
    return with_changes(task, workload={"rate_scale": task.workload.rate_scale * factor})


def saturated(task: Task, factor: float) -> Task:
    """The same requests as steady Poisson traffic of so many times the mean rate, from clients that never leave."""
    rates = np.mean([schedule(task.workload, seed).rate_rps.mean(axis=0) for seed in RATE_SEEDS], axis=0)
    workload = task.workload.model_dump(by_alias=True)
    sources = []
    for source, rate_rps, spec in zip(workload["sources"], rates.tolist(), task.workload.sources, strict=True):
        starts = rate_rps if spec.sessions is None else rate_rps / max(_mean_turns(task, spec.tenant), 1.0)
        sources.append({**source, "arrivals": {"kind": "poisson", "rate_rps": factor * starts}})
    classes = [{**service, "patience_s": None} for service in workload["classes"]]
    return with_changes(task, workload={"sources": sources, "classes": classes, "rate_scale": 1.0})


def _mean_turns(task: Task, tenant: str) -> float:
    """Turns per session of a tenant, from the quantiles of its law."""
    from llmserve_env.workloads.distributions import tokens

    levels = (np.arange(256) + 0.5) / 256
    found = [s.sessions for s in task.workload.sources if s.tenant == tenant and s.sessions is not None]
    return float(np.mean([tokens(sessions.turns, levels).mean() for sessions in found])) if found else 1.0
