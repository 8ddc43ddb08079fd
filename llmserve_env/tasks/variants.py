"""The same task with something else: another fleet, GPU, rate or traffic, or other fields.

A variant is checked like any other task. It has no file, so it cannot be graded on the references of the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ConfigError
from llmserve_env.profiles.memory import UTILISATION
from llmserve_env.profiles.store import load_profile
from llmserve_env.tasks.defaults import default_quality
from llmserve_env.tasks.task import Task, parse_task
from llmserve_env.units import bytes_to_gb
from llmserve_env.workloads import schedule
from llmserve_env.workloads.distributions import tokens

RATE_SEEDS = range(32)


def with_changes(task: Task, **changes: Any) -> Task:
    """The task with other fields; a mapping changes some fields of a section, any other value replaces its field."""
    data = task.model_dump(by_alias=True)
    for field, value in changes.items():
        data[field] = {**data[field], **value} if isinstance(value, Mapping) else value
    return parse_task(data, task.id)


def at_rate(task: Task, factor: float) -> Task:
    """The same traffic at `factor` times its rate."""
    return with_changes(task, workload={"rate_scale": task.workload.rate_scale * factor})


def on_profile(task: Task, profile: str | None = None, memory_limit_gb: float | None = None) -> Task:
    """The same task on another latency profile, or with another memory limit, which the card must have."""
    deployment: dict[str, Any] = {
        "profile": profile or task.deployment.profile,
        "memory_limit_gb": memory_limit_gb or task.deployment.memory_limit_gb,
    }
    card_gb = _card_gb(deployment["profile"])
    if deployment["memory_limit_gb"] > card_gb:
        raise ConfigError(
            f"a memory limit of {deployment['memory_limit_gb']:g} GB exceeds the {card_gb:.1f} GB of "
            f"{deployment['profile']}: pass a smaller one"
        )
    return with_changes(task, **_on_tiers(task, deployment))


def on_fleet(task: Task, replicas: int, profile: str | None = None) -> Task:
    """So many replicas, none set aside for prefill; on another GPU with the share of its memory that vLLM takes."""
    active = [name for name in task.knobs.active if name != "prefill_decode_split"]
    deployment: dict[str, Any] = {"replicas": replicas, "prefill_replicas": 0}
    if profile is not None and profile != task.deployment.profile:
        limit_gb = round(UTILISATION * _card_gb(profile), 1)
        # A price in the task is that of the GPU it names.
        deployment |= {"profile": profile, "memory_limit_gb": limit_gb, "price_usd_per_hour": None}
    return with_changes(task, **_on_tiers(task, deployment), knobs={"active": active})


def _on_tiers(task: Task, deployment: dict[str, Any]) -> dict[str, Any]:
    """The deployment, and what answers are worth in the tiers of its profile: by the task, or else by default."""
    profile = deployment.get("profile", task.deployment.profile)
    if profile == task.deployment.profile:
        return {"deployment": deployment}
    names = list(load_profile(profile).tiers)
    offered = [TIER_NAMES[number] for number in task.fleet.costs.tiers]
    quality = {
        name: [dict(zip(offered, said, strict=True)).get(tier, default_quality([tier])[0]) for tier in names]
        for name, said in task.reward.quality.items()
    }
    return {"deployment": {**deployment, "tiers": None}, "reward": {"quality": quality}}


def saturated(task: Task, factor: float) -> Task:
    """The same requests as steady Poisson traffic of `factor` times the mean rate, from clients that never leave."""
    rates = np.mean([schedule(task.workload, seed).rate_rps.mean(axis=0) for seed in RATE_SEEDS], axis=0)
    workload = task.workload.model_dump(by_alias=True)
    sources = []
    for source, rate_rps, spec in zip(workload["sources"], rates.tolist(), task.workload.sources, strict=True):
        starts = rate_rps if spec.sessions is None else rate_rps / max(_mean_turns(task, spec.tenant), 1.0)
        sources.append({**source, "arrivals": {"kind": "poisson", "rate_rps": factor * starts}})
    classes = [{**service, "patience_s": None} for service in workload["classes"]]
    return with_changes(task, workload={"sources": sources, "classes": classes, "rate_scale": 1.0})


def _card_gb(profile: str) -> float:
    return bytes_to_gb(load_profile(profile).gpu.memory_bytes)


def _mean_turns(task: Task, tenant: str) -> float:
    """Mean turns per session of a tenant."""
    levels = (np.arange(256) + 0.5) / 256
    found = [s.sessions for s in task.workload.sources if s.tenant == tenant and s.sessions is not None]
    return float(np.mean([tokens(sessions.turns, levels).mean() for sessions in found])) if found else 1.0
