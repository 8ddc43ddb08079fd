"""An agent as two methods over plain dictionaries, and the adapter that plays it like any other agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.arrays import Array
from llmserve_env.errors import InvalidActionError
from llmserve_env.own_code import own_code
from llmserve_env.tasks.task import Task

MAX_AGENT_SEED = 2**31


class SimpleAgent(Protocol):
    """What a user writes: one object plays one episode at a time."""

    def reset(self, task: dict[str, Any], seed: int) -> None:
        """Start an episode. `seed` is for the agent's own randomness and says nothing about the traffic."""

    def act(self, observation: dict[str, Any]) -> Mapping[str, Any]:
        """The knobs to change for the next window; those left out keep their values."""


class FunctionAgent:
    """A plain function from the observation to the knobs to change."""

    def __init__(self, decide: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        self._decide = decide

    def reset(self, task: dict[str, Any], seed: int) -> None:
        """A function keeps nothing between windows."""

    def act(self, observation: dict[str, Any]) -> Mapping[str, Any]:
        return self._decide(observation)


class SimpleAgents:
    """Plays a simple agent on any number of episodes, with a separate object for each."""

    def __init__(self, name: str, make: Callable[[], SimpleAgent]) -> None:
        self.name = name
        self._make = make
        self._players: list[SimpleAgent] = []
        self._asked: Array | None = None
        """The knobs that each episode asked for last. Those in force may still be others, where a change is held."""

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        self._asked = None
        with own_code(f"{self.name}: __init__()"):
            self._players = [self._make() for _ in rngs]
        for player, rng in zip(self._players, rngs, strict=True):
            with own_code(f"{self.name}: reset()"):
                player.reset(task_facts(task), int(rng.integers(MAX_AGENT_SEED)))

    def act(self, view: AgentView) -> Array:
        before = view.knobs if self._asked is None else self._asked
        knobs = np.array([self._knobs(view, index, before[index]) for index in range(len(self._players))])
        self._asked = knobs
        return knobs.copy()

    def _knobs(self, view: AgentView, index: int, before: Array) -> Array:
        where = f"{self.name}, step {view.step + 1}"
        with own_code(f"{where}: act()"):
            action = self._players[index].act(view.observed(index))
        if not isinstance(action, Mapping):
            raise InvalidActionError(
                f"{where}: act() must return a dictionary of knobs, such as {{'batch_cap': 64}}; got {action!r:.80}"
            )
        try:
            return view.task.knobs_from_partial(before, action)
        except InvalidActionError as error:
            raise InvalidActionError(f"{where}: {error}") from error


def task_facts(task: Task) -> dict[str, Any]:
    """What an agent is told about a task at reset: plain data, as JSON carries it."""
    return {
        "id": task.id,
        "version": task.version,
        "name": task.name,
        "description": task.description,
        "steps": task.steps,
        "window_s": task.window_s,
        "classes": {
            service.name: {
                "ttft_slo_ms": service.ttft_slo_ms,
                "patience_s": service.patience_s,
                "weight": task.reward.class_weights[service.name],
            }
            for service in task.workload.classes
        },
        "replicas": task.deployment.replicas,
        "prefill_replicas": task.deployment.prefill_replicas,
        "memory_limit_gb": task.deployment.memory_limit_gb,
        "knobs": {
            knob.name: {
                "is_active": knob.name in task.knobs.active,
                "kind": knob.kind,
                "low": knob.low,
                "high": knob.high,
                "levels": [knob.wire(level) for level in knob.levels],
                "default": knob.wire(task.default_knobs[knob.column]),
                "dwell_steps": task.knobs.dwell_steps.get(knob.name, 0),
            }
            for knob in task.action_knobs
        },
        "reward_weights": task.reward.weights.model_dump(),
    }
