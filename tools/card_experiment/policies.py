"""The policies of the experiment by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llmserve_env.agents.agent import Agent, AgentView
from llmserve_env.agents.constant import ConstantAgent, tuned_knobs
from llmserve_env.agents.own.loading import load_agent
from llmserve_env.arrays import Array
from llmserve_env.backends.real.tasks import real_task
from llmserve_env.tasks.task import Task
from tools.card_experiment.engines import EnginePlan

VLLM_DEFAULTS, TUNED, TRAINED = "vllm", "tuned", "ppo"
POLICIES = (VLLM_DEFAULTS, TUNED, "heuristic", TRAINED)


class EngineDefaults:
    """What the engine itself would have set, in every window."""

    name = VLLM_DEFAULTS

    def __init__(self, defaults: Mapping[str, Any]) -> None:
        self._defaults, self._task = defaults, None

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        """Nothing is remembered."""

    def act(self, view: AgentView) -> Array:
        return np.array([view.task.knobs_from_partial(row, self._defaults) for row in view.knobs])


def policy_of(name: str, plan: EnginePlan) -> Agent:
    """An agent by name or place; `vllm` is the engine's own defaults.

    The tuned constant is that of the plan's whole task, also where a shorter version of it is played.
    """
    if name == VLLM_DEFAULTS:
        return EngineDefaults(plan.defaults)
    return ConstantAgent(tuned_knobs(real_task(plan.task)), TUNED) if name == TUNED else load_agent(name)
