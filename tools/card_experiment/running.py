"""The experiment on one engine: every policy on every seed, between two episodes that tell how fast the host is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

from llmserve_env.agents.agent import Agent
from llmserve_env.backends.real.in_process import InProcessEngine
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task
from tools.card_experiment.calibrating import SEEDS, is_recorded, record
from tools.card_experiment.engines import EnginePlan
from tools.card_experiment.playing import play_live, start, task_of, warm_up
from tools.card_experiment.policies import policy_of
from tools.card_experiment.records import is_kept, save

MARGIN_S = 5.0
"""Beyond the length of an episode, for its beginning and end."""
BEFORE, AFTER = SEEDS


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
    episode_s = task.steps * task.window_s + MARGIN_S
    # The recording after the episodes is also an episode, and it must end in time.
    last_start_s = math.inf if limit_s is None else began_s + limit_s - 2 * episode_s
    try:
        warm_up(engine, task, plan)
        for said in _episodes(engine, task, plan, engine_name, agents, missing, out, last_start_s):
            print(f"{said}, at {time.monotonic() - began_s:.0f} s", flush=True)
    finally:
        engine.close()


def _episodes(
    engine: InProcessEngine,
    task: Task,
    plan: EnginePlan,
    engine_name: str,
    agents: dict[str, Agent],
    missing: Sequence[tuple[int, str]],
    out: Path,
    last_start_s: float,
) -> Iterator[str]:
    """Play and keep one after the other; what is to be said of each."""
    if not is_recorded(out, BEFORE):
        yield f"{record(engine, task, plan, out, BEFORE)} iterations recorded before the episodes"
    for seed, name in missing:
        if time.monotonic() > last_start_s:
            yield f"stopped before {name} on seed {seed}, which would not end in time; run again to go on"
            break
        played, facts = play_live(engine, task, agents[name], seed)
        facts |= {"engine": engine_name, "policy": name, "seed": seed, "task": task.id}
        facts |= {"task_version": task.version, "vllm": import_module("vllm").__version__}
        save(out, facts, played)
        yield (
            f"{name} on seed {seed}: {len(played.requests)} requests, "
            f"reward {played.trajectory.terms['reward'][: played.step_count].mean():.4f}, "
            f"client {facts['client_cpu_share']:.0%} of a core"
        )
    if not is_recorded(out, AFTER):
        yield f"{record(engine, task, plan, out, AFTER)} iterations recorded after the episodes"
