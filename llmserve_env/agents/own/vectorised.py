"""An agent of one's own that decides for all episodes at once; what it returns is checked like any other action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llmserve_env.agents.agent import Agent, AgentView, BranchingAgent
from llmserve_env.arrays import Array
from llmserve_env.engine.knob import Knob
from llmserve_env.engine.knobs import KNOBS
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import InvalidActionError
from llmserve_env.own_code import own_code
from llmserve_env.tasks.task import Task


class VectorisedAgent:
    """Plays a user's object of the vectorised protocol under the name of its specification."""

    def __init__(self, name: str, agent: Agent) -> None:
        self.name = name
        self._agent = agent

    @property
    def episode_usage(self) -> Any:
        """What the object counts of each episode, if it counts anything."""
        return self._agent.episode_usage  # type: ignore[attr-defined]

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        with own_code(f"{self.name}: reset()"):
            self._agent.reset(task, rngs)

    def act(self, view: AgentView) -> Array:
        where = f"{self.name}, step {view.step + 1}"
        with own_code(f"{where}: act()"):
            knobs = self._agent.act(view)
        return _checked(knobs, view, where)


class BranchingVectorisedAgent(VectorisedAgent):
    """One that is also given the simulator."""

    def attach(self, batch: EpisodeBatch) -> None:
        """Passed on."""
        if isinstance(self._agent, BranchingAgent):
            with own_code(f"{self.name}: attach()"):
                self._agent.attach(batch)


def vectorised(name: str, agent: Agent) -> VectorisedAgent:
    """A user's object as an agent that is checked."""
    return (BranchingVectorisedAgent if isinstance(agent, BranchingAgent) else VectorisedAgent)(name, agent)


def _checked(knobs: Any, view: AgentView, where: str) -> Array:
    shape = view.knobs.shape
    if not isinstance(knobs, np.ndarray) or knobs.shape != shape or knobs.dtype.kind not in "fiu":
        got = f"{knobs.dtype} of shape {knobs.shape}" if isinstance(knobs, np.ndarray) else f"{knobs!r:.80}"
        raise InvalidActionError(f"{where}: act() must return an array of numbers of shape {shape}; got {got}")
    values: Array = knobs.astype(np.float64)
    for knob in view.task.knob_table:
        wrong = np.flatnonzero(~_fits(values[:, knob.column], knob))
        if len(wrong):
            value = float(values[wrong[0], knob.column])
            raise InvalidActionError(f"{where}, row {wrong[0]}: {knob.name} must be {knob.allowed}; got {value:g}")
    return values


def _fits(column: Array, knob: Knob) -> Array:
    """Which values a knob takes; not-a-number leaves a knob open whose default the deployment decides."""
    fits: Array = (column >= knob.low) & (column <= knob.high)
    if knob.kind == "tier":
        fits = np.isin(column, knob.levels)
    elif knob.kind != "float":
        fits &= column == np.floor(column)
    return fits | np.isnan(column) if KNOBS[knob.column].default is None else fits
