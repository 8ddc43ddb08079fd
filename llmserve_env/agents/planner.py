"""`planner` and `clairvoyant`: try plans on copies of the simulator and keep the best.

This is model-predictive control with the simulator itself and its present state as the model. `planner` plays its
copies against forecast traffic; `clairvoyant` against the traffic that will really come, which no deployable agent can
know: it is a ceiling, and is labelled as one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.branching import Branches
from llmserve_env.agents.constant import tuned_knobs
from llmserve_env.agents.forecast import Forecast, forecast_of
from llmserve_env.agents.plans import candidate_plans
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import default_knobs, named
from llmserve_env.env.episode_batch import EpisodeBatch
from llmserve_env.errors import EpisodeStateError, WeightsNotFoundError
from llmserve_env.tasks.task import Task


class PlannerAgent:
    """Model-predictive control over a forecast."""

    name = "planner"
    sees_the_future = False
    horizon_steps = 8
    """Windows each plan is played for when it is tried; as far as the forecast reaches."""
    margins: tuple[float, ...] = (0.1, 0.06)
    """KV budgets that plans keep above what is in use."""
    num_hypotheses = 2

    def __init__(self, constant: Array | None = None) -> None:
        self._constant = constant
        """What plans vary; the tuned constant of the task where none is given."""
        self._batch: EpisodeBatch | None = None
        self._branches: Branches | None = None
        self._forecast: Forecast | None = None
        self._task: Task | None = None
        self._base = default_knobs()
        self._arrived: list[Array] = []

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        if task is not self._task:
            self._task, self._branches = task, None
            self._forecast = None if self.sees_the_future else forecast_of(task)
        self._base = known_constant(task) if self._constant is None else self._constant
        self._arrived = []

    def attach(self, batch: EpisodeBatch) -> None:
        self._batch = batch
        if self._branches is None:
            self._branches = Branches.simulated(batch.task, self.num_copies(batch.task))

    @property
    def is_attached(self) -> bool:
        """Whether the copies have been made."""
        return self._branches is not None

    def detach(self) -> None:
        """Free the copies, which take as much memory as that many episodes; `attach` makes new ones."""
        self._batch = self._branches = None

    def num_copies(self, task: Task) -> int:
        """How many copies of an episode this agent tries its plans on."""
        return candidate_plans(task, self._base, self._base, self.margins, 1).num_plans * self.num_hypotheses

    def act(self, view: AgentView) -> Array:
        if self._batch is None or self._branches is None:
            raise EpisodeStateError(f"{self.name} needs the simulator in process; call attach() before act()")
        if view.step > 0:
            self._arrived.append(np.rint(view.metrics["window_rate_rps"] * view.task.window_s))
        return np.array([self._plan(view, e, self._batch, self._branches) for e in range(view.num_episodes)])

    def _plan(self, view: AgentView, index: int, batch: EpisodeBatch, branches: Branches) -> Array:
        num_steps = min(self.horizon_steps, view.task.steps - view.step)
        plans = candidate_plans(view.task, view.knobs[index], self._base, self.margins, num_steps)
        now_ps = view.step * view.task.window_ps
        until_ps = now_ps + num_steps * view.task.window_ps
        branches.split_off(batch, index, until_ps)
        if self._forecast is not None:
            self._imagine(self._forecast, branches, index, (now_ps, until_ps))
        used = float(view.metrics["kv_cache_occupancy"][index] * named(view.knobs)["kv_budget_fraction"][index])
        rewards = branches.mean_reward(plans.repeated(self.num_hypotheses), used)
        best = int(np.argmax(rewards.reshape(self.num_hypotheses, -1).mean(axis=0)))
        chosen: Array = plans.at(0, np.full(plans.num_plans, used))[best]
        return chosen

    def _imagine(self, forecast: Forecast, branches: Branches, index: int, span_ps: tuple[int, int]) -> None:
        """Give an equal share of the branches the traffic of each of the likeliest hypotheses."""
        arrived = np.array([row[index] for row in self._arrived])
        share = branches.num_episodes // self.num_hypotheses
        for i, hypothesis in enumerate(forecast.best_hypotheses(arrived, self.num_hypotheses)):
            coming = forecast.arrivals_between(int(hypothesis), *span_ps)
            branches.replace_future(slice(i * share, (i + 1) * share), coming)


class ClairvoyantAgent(PlannerAgent):
    """The planner with the true traffic of the horizon: a ceiling, not a competitor."""

    name = "clairvoyant"
    sees_the_future = True
    horizon_steps = 12
    margins = (0.1, 0.06, 0.2)
    num_hypotheses = 1


def known_constant(task: Task) -> Array:
    """The tuned constant, which plans vary; the environment's defaults for tasks without one."""
    try:
        return tuned_knobs(task)
    except WeightsNotFoundError:
        return task.default_knobs
