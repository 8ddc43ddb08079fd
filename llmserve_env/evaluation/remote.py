"""Agents on a remote environment: they see the fields of the wire, and the server grades."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from llmserve_env.agents.agent import Agent, AgentView, BranchingAgent
from llmserve_env.engine.knobs import mapping_from_knobs
from llmserve_env.engine.metrics import METRICS_DTYPE
from llmserve_env.env.wire_names import WIRE_NAMES
from llmserve_env.errors import ConfigError
from llmserve_env.rng import POLICY_STREAM, stream
from llmserve_env.tasks.task import Task

WIRE_METRICS_DTYPE = np.dtype([(name, METRICS_DTYPE[name]) for name in WIRE_NAMES])
"""The metrics that the wire carries."""


class RemoteEnvironment(Protocol):
    """What is used of a client such as `LLMServeEnv`."""

    def reset(self, task_id: str, seed: int) -> Any:
        """Open a session; the first observation."""

    def step(self, action: Mapping[str, Any]) -> tuple[Any, float, bool, dict[str, Any]]:
        """Serve one window."""

    def grade(self) -> Any:
        """The server's grade: score, breakdown, feedback."""

    def close(self) -> None:
        """Close the connection."""


def view_from_wire(task: Task, observation: Any) -> AgentView:
    """The view of one remote episode; it has no other metrics than the wire carries, so asking for one is an error."""
    metrics = np.empty(1, WIRE_METRICS_DTYPE)
    for metric, field in WIRE_NAMES.items():
        metrics[metric] = getattr(observation, field)
    return AgentView(
        task=task,
        step=int(observation.step_index),
        metrics=metrics,
        preemptions=np.array([observation.eviction_events]),
        knobs=task.knobs_from_mapping(observation.metadata["knobs"])[None],
        features=None,
        observed=lambda _: _as_mapping(observation),
    )


def _as_mapping(observation: Any) -> dict[str, Any]:
    """The fields of a client's observation."""
    fields: dict[str, Any] = observation.model_dump()
    return fields


def play_remote(env: RemoteEnvironment, agent: Agent, task: Task, seed: int) -> Any:
    """Play one episode through a client; the grade is the server's."""
    if isinstance(agent, BranchingAgent):
        raise ConfigError(
            f"{agent.name} branches the simulator, which cannot be done over the wire: play it in process"
        )
    observation = env.reset(task_id=task.id, seed=seed)
    agent.reset(task, [stream(seed, POLICY_STREAM)])
    while not observation.done:
        knobs = agent.act(view_from_wire(task, observation))[0]
        observation, _, _, _ = env.step(mapping_from_knobs(knobs, task.action_knobs))
    return env.grade()
