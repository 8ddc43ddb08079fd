"""One episode on a live engine in this process, in real time."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from llmserve_env.agents.agent import Agent, view_of
from llmserve_env.backends.real.backend import LiveBackend
from llmserve_env.backends.real.in_process import InProcessEngine, InProcessProvider
from llmserve_env.backends.real.plugin.llmserve_steering.control import Status
from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.backends.real.tasks import real_task
from llmserve_env.env.episode import Episode, PlayedEpisode
from llmserve_env.errors import ConfigError
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from llmserve_env.tasks.variants import at_rate, with_changes
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.policies import policy_of

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


@contextmanager
def live_episode(
    engine: InProcessEngine, task: Task, seed: int, *, record_iterations: bool = False
) -> Iterator[tuple[Episode, LiveBackend]]:
    """An episode on the engine, reset; recording its iterations costs some time in each."""
    settings = RealSettings(provider="vllm", spread_caps=False, **UNLIMITED)
    backend = LiveBackend(task, settings, partial(InProcessProvider, engine, record_iterations=record_iterations))
    with Episode(task, backend=backend) as episode:
        episode.reset(seed)
        yield episode, backend


def play_out(episode: Episode, task: Task, policy: Agent, seed: int) -> PlayedEpisode:
    """Play to the end, in real time."""
    policy.reset(task, [stream(seed, POLICY_STREAM)])
    while not episode.is_done:
        episode.step(policy.act(view_of(episode.batch, episode.step_count))[0])
    return episode.played()


def play_live(engine: InProcessEngine, task: Task, policy: Agent, seed: int) -> tuple[PlayedEpisode, dict[str, Any]]:
    """Play one episode in real time; what happened, and what the engine says of itself."""
    with live_episode(engine, task, seed) as (episode, backend):
        provider = provider_of(backend)
        before, began_s, began_cpu_s = provider.status(), time.monotonic(), time.process_time()
        played = play_out(episode, task, policy, seed)
        details = backend.details()["real"]
    after = provider.status()
    facts = {
        **engine_facts(after),
        "preemptions": after.preemptions - before.preemptions,
        "iterations": after.iterations - before.iterations,
        "failures": details["failures"],
        "not_sent": details["not_sent"],
        "client_cpu_share": round((time.process_time() - began_cpu_s) / (time.monotonic() - began_s), 3),
    }
    return played, facts


def provider_of(backend: LiveBackend) -> InProcessProvider:
    """The provider of an episode that is under way."""
    assert isinstance(backend.provider, InProcessProvider)
    return backend.provider


def engine_facts(status: Status) -> dict[str, Any]:
    """What the simulator must know of the engine."""
    return {name: getattr(status, name) for name in ("num_blocks", "block_tokens", "graph_max_tokens")}


def warm_up(engine: InProcessEngine, task: Task, plan: EnginePlan) -> None:
    """A short episode at several times the rate: whatever is slow the first time happens before the clock starts."""
    short = with_changes(at_rate(task, WARM_RATE), steps=min(task.steps, WARM_WINDOWS))
    play_live(engine, short, policy_of("vllm", plan), 0)
    # A full garbage collection takes half a second with vLLM imported, in which no token is taken in. vLLM's own server
    # does the same.
    gc.collect()
    gc.freeze()
