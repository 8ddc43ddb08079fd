"""Playing policies on a live engine in this process, one episode after the other."""

from __future__ import annotations

import gc
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
from llmserve_env.tasks.variants import at_rate, with_changes
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.policies import policy_of
from tools.card_experiment.records import is_kept, save

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
WARM_RATE, WARM_WINDOWS = 4.0, 16
MARGIN_S = 5.0
"""Beyond the length of an episode, for its beginning and end."""


def start(plan: EnginePlan, folder: Path, model: Path | None, **options: Any) -> InProcessEngine:
    """Start the engine of a plan."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", **plan.environment}
    arguments = {**plan.arguments, **({"model": str(model)} if model else {})}
    if "model" not in arguments:
        raise ConfigError("this engine needs --model, a folder that tools/tiny_model.py wrote")
    return InProcessEngine(folder, **arguments, **options)


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
    # Nothing is recorded per iteration, which would slow the engine down.
    backend = LiveBackend(task, settings, partial(InProcessProvider, engine, record_iterations=False))
    with Episode(task, backend=backend) as episode:
        episode.reset(seed)
        provider = backend.provider
        assert isinstance(provider, InProcessProvider)
        before, began_s, began_cpu_s = provider.status(), time.monotonic(), time.process_time()
        policy.reset(task, [stream(seed, POLICY_STREAM)])
        while not episode.is_done:
            episode.step(policy.act(view_of(episode.batch, episode.step_count))[0])
        played = episode.played()
        details = backend.details()["real"]
    after = provider.status()
    facts = {
        "num_blocks": after.num_blocks,
        "block_tokens": after.block_tokens,
        "graph_max_tokens": after.graph_max_tokens,
        "preemptions": after.preemptions - before.preemptions,
        "iterations": after.iterations - before.iterations,
        "failures": details["failures"],
        "not_sent": details["not_sent"],
        "client_cpu_share": round((time.process_time() - began_cpu_s) / (time.monotonic() - began_s), 3),
    }
    return played, facts


def warm_up(engine: InProcessEngine, task: Task, plan: EnginePlan) -> None:
    """A short episode at several times the rate: whatever is slow the first time happens before the clock starts."""
    short = with_changes(at_rate(task, WARM_RATE), steps=min(task.steps, WARM_WINDOWS))
    play_live(engine, short, policy_of("vllm", plan), 0)
    # A full garbage collection takes half a second with vLLM imported, in which no token is taken in. vLLM's own server
    # does the same.
    gc.collect()
    gc.freeze()


def run(
    plan: EnginePlan,
    engine_name: str,
    policies: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    *,
    windows: int | None = None,
    model: Path | None = None,
    limit_s: float | None = None,
) -> None:
    """Play every policy on every seed that `out` does not hold yet; no episode is begun that would outlast the limit.

    Policies alternate, so that a drift of the machine meets all of them. Each episode is kept as soon as it is over.
    """
    began_s, task = time.monotonic(), task_of(plan, windows)
    missing = [(seed, name) for seed in seeds for name in policies if not is_kept(out, name, seed)]
    agents = {name: policy_of(name, plan) for name in policies}
    for agent in agents.values():
        # A policy without weights or constant is found before the engine is started.
        agent.reset(task, [stream(0, POLICY_STREAM)])
    if not missing:
        print(f"{out} holds all {len(seeds) * len(policies)} episodes", flush=True)
        return
    engine = start(plan, out / "control", model)
    print(f"the engine started in {time.monotonic() - began_s:.0f} s", flush=True)
    try:
        warm_up(engine, task, plan)
        for seed, name in missing:
            episode_s = task.steps * task.window_s + MARGIN_S
            if limit_s is not None and time.monotonic() - began_s + episode_s > limit_s:
                print(f"stopped before {name} on seed {seed}: {limit_s:g} s are over; run again to go on", flush=True)
                break
            played, facts = play_live(engine, task, agents[name], seed)
            facts |= {"engine": engine_name, "policy": name, "seed": seed, "task": task.id}
            facts |= {"task_version": task.version, "vllm": import_module("vllm").__version__}
            save(out, facts, played)
            print(
                f"{name} on seed {seed}: {len(played.requests)} requests, "
                f"reward {played.trajectory.terms['reward'][: played.step_count].mean():.4f}, "
                f"client {facts['client_cpu_share']:.0%} of a core, at {time.monotonic() - began_s:.0f} s",
                flush=True,
            )
    finally:
        engine.close()
