"""Short ways to play, for the tests of agents."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmserve_env.agents.agent import Agent, AgentView, BranchingAgent, view_of
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.catalog import load_task


def batch_of(task: str, seeds: list[int]) -> EpisodeBatch:
    """Episodes at their start."""
    batch = EpisodeBatch.simulated(load_task(task), len(seeds))
    for index, seed in enumerate(seeds):
        batch.reset(index, seed)
    return batch


def begin(agent: Agent, batch: EpisodeBatch, seeds: list[int]) -> None:
    """Make an agent ready for these episodes."""
    agent.reset(batch.task, [stream(seed, POLICY_STREAM) for seed in seeds])
    if isinstance(agent, BranchingAgent):
        agent.attach(batch)


def rewards(agent: Agent, task: str, seeds: list[int], steps: int) -> Any:
    """Rewards of the first steps, shape (steps, seeds)."""
    batch = batch_of(task, seeds)
    begin(agent, batch, seeds)
    paid = []
    for step in range(steps):
        batch.step(agent.act(view_of(batch, step)))
        paid.append(batch.terms["reward"].copy())
    return np.array(paid)


def view(task: str = "adversarial_multitenant", step: int = 5, metrics: dict[str, float] | None = None) -> AgentView:
    """A view of one episode with these metrics and vLLM's knobs."""
    row = np.zeros(1, METRICS_DTYPE)
    row["slo_attainment"] = 1.0
    for name, value in (metrics or {}).items():
        row[name] = value
    known = load_task(task)
    return AgentView(known, step, row, np.zeros(1), known.default_knobs[None], None, lambda _: {})
