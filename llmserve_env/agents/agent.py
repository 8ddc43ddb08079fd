"""What an agent is and what it may see: the last window and the knobs in force, never the traffic to come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.env.observation import observe_in
from llmserve_env.tasks.task import Task


@dataclass(frozen=True, slots=True)
class AgentView:
    """What is known at a window boundary, one row per episode played side by side."""

    task: Task
    step: int
    """Windows served so far."""
    metrics: Array
    """Metrics of the last window (`METRICS_DTYPE`), zeros before the first; over the wire only those it carries."""
    preemptions: Array
    """Requests that lost their KV blocks in the last window."""
    knobs: Array
    """Knobs in force, shape (episodes, knobs); `engine.knobs.named` shows them by name."""
    features: Array | None
    """The observation vector, shape (episodes, features); None where only the wire's fields are known."""
    observed: Callable[[int], dict[str, Any]]
    """The observation of one episode by its index, with the wire's field names; made when it is asked for."""

    @property
    def num_episodes(self) -> int:
        return len(self.knobs)


class Agent(Protocol):
    """Chooses the knobs of every window. Each episode must be played as if it were the only one."""

    name: str

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        """Start as many episodes as there are generators; each is the only randomness its episode may use."""

    def act(self, view: AgentView) -> Array:
        """Knob values for the next window, shape (episodes, knobs)."""


@runtime_checkable
class BranchingAgent(Agent, Protocol):
    """An agent that needs the simulator itself, to try things out before it acts."""

    def attach(self, batch: EpisodeBatch) -> None:
        """Called once per batch of episodes, after their reset."""


def view_of(batch: EpisodeBatch, step: int) -> AgentView:
    """The view of episodes in process. Its arrays are copies: an agent cannot reach into the simulator."""
    return AgentView(
        task=batch.task,
        step=step,
        metrics=batch.metrics.copy(),
        preemptions=batch.window["preemptions"].copy(),
        knobs=batch.knobs.copy(),
        features=batch.features(),
        observed=partial(observe_in, batch),
    )
