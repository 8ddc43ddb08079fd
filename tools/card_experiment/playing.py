"""Playing policies on a live engine in this process, one episode after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from llmserve_env.agents.agent import Agent, view_of
from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.in_process import InProcessEngine, InProcessProvider
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.tasks import real_task
from llmserve_env.env.episode import Episode, PlayedEpisode
from llmserve_env.errors import ConfigError
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import with_changes
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.policies import policy_of
from tools.card_experiment.records import save

UNLIMITED: dict[str, Any] = {
    "max_requests_per_step": 10**6,
    "max_prompt_tokens": 10**6,
    "max_completion_tokens": 10**6,
    "max_requests": 10**9,
    "max_tokens": 10**12,
    "max_usd": 1e9,
    "request_timeout_s": 3_600.0,
}
"""The engine is ours: nothing is cut, or the two columns would not be of the same requests."""


def start(plan: EnginePlan, folder: Path, model: Path | None) -> InProcessEngine:
    """Start the engine of a plan."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **plan.environment}
    arguments = {**plan.arguments, **({"model": str(model)} if model else {})}
    if "model" not in arguments:
        raise ConfigError("this engine needs --model, a folder that tools/tiny_model.py wrote")
    return InProcessEngine(folder, **arguments)


def task_of(plan: EnginePlan, windows: int | None) -> Task:
    """The plan's task, or a shorter or longer version of it."""
    task = real_task(plan.task)
    if windows is None or windows == task.steps:
        return task
    horizon_s = max(int(windows * task.window_s), task.workload.horizon_s)
    return with_changes(task, steps=windows, workload={"horizon_s": horizon_s})


def play_live(engine: InProcessEngine, task: Task, policy: Agent, seed: int) -> tuple[PlayedEpisode, dict[str, Any]]:
    """Play one episode in real time; what happened, and what the engine says of itself."""
    settings = RealSettings(provider="vllm", spread_caps=False, **UNLIMITED)
    backend = LiveBackend(task, settings, partial(InProcessProvider, engine))
    with Episode(task, backend=backend) as episode:
        episode.reset(seed)
        provider = backend.provider
        assert isinstance(provider, InProcessProvider)
        before = provider.status()
        policy.reset(task, [stream(seed, POLICY_STREAM)])
        while not episode.is_done:
            episode.step(policy.act(view_of(episode.batch, episode.step_count))[0])
        played = episode.played()
    after = provider.status()
    facts = {
        "num_blocks": after.num_blocks,
        "block_tokens": after.block_tokens,
        "preemptions": after.preemptions - before.preemptions,
    }
    return played, facts


def run(
    plan: EnginePlan,
    engine_name: str,
    policies: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    *,
    windows: int | None = None,
    model: Path | None = None,
) -> None:
    """Play every policy on every seed. Policies alternate, so that a drift of the machine meets all of them."""
    task = task_of(plan, windows)
    agents = {name: policy_of(name, plan.defaults) for name in policies}
    engine = start(plan, out / "control", model)
    try:
        warm = with_changes(task, steps=min(task.steps, 10))
        play_live(engine, warm, policy_of("vllm", plan.defaults), 0)
        for seed in seeds:
            for name, agent in agents.items():
                began_s = time.monotonic()
                played, facts = play_live(engine, task, agent, seed)
                facts |= {
                    "engine": engine_name,
                    "policy": name,
                    "seed": seed,
                    "task": task.id,
                    "task_version": task.version,
                }
                facts["vllm"] = import_module("vllm").__version__
                save(out, facts, played)
                print(
                    f"{name} on seed {seed}: {len(played.requests)} requests, {time.monotonic() - began_s:.0f} s",
                    flush=True,
                )
    finally:
        engine.close()
