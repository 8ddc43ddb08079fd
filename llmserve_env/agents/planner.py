"""`planner` and `clairvoyant`: try candidate knobs on copies of the simulator and keep the best.

This is model-predictive control with the simulator itself and its present state as the model. `planner` plays its
copies against forecast traffic; `clairvoyant` against the traffic that will really come, which no deployable agent can
know: it is a ceiling, and is labelled as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llmserve_env.agents.agent import AgentView
from llmserve_env.agents.branching import Branches
from llmserve_env.agents.constant import tuned_knobs
from llmserve_env.agents.forecast import Forecast
from llmserve_env.env.knob_values import KNOBS
from llmserve_env.env.rollouts import Rollouts
from llmserve_env.errors import EpisodeStateError, WeightsNotFoundError
from llmserve_env.tasks.task import KNOB_NAMES, Task

Array = npt.NDArray[Any]

NUM_REMEMBERED = 4
"""Winners of earlier steps that compete again."""


class PlannerAgent:
    """Model-predictive control over a forecast."""

    name = "planner"
    sees_the_future = False
    horizon_steps = 8
    """Windows each candidate is kept for when it is tried; as far as the forecast reaches."""
    commit_steps = 4
    """Windows after which half of the candidates go back to the tuned constant, where there is one."""
    num_candidates = 16
    num_hypotheses = 2

    def __init__(self) -> None:
        self._rollouts: Rollouts | None = None
        self._branches: Branches | None = None
        self._forecast: Forecast | None = None
        self._task: Task | None = None
        self._rngs: Sequence[np.random.Generator] = ()
        self._base: Array | None = None
        self._winners: list[list[Array]] = []
        self._arrived: list[Array] = []

    def reset(self, task: Task, rngs: Sequence[np.random.Generator]) -> None:
        if task is not self._task:
            self._task, self._branches = task, None
            self._forecast = None if self.sees_the_future else Forecast(task)
        self._base = known_constant(task)
        self._rngs = rngs
        self._winners = [[] for _ in rngs]
        self._arrived = []

    def attach(self, rollouts: Rollouts) -> None:
        self._rollouts = rollouts
        self._branches = self._branches or Branches(rollouts.task, self.num_candidates * self.num_hypotheses)

    def act(self, view: AgentView) -> Array:
        if self._rollouts is None or self._branches is None:
            raise EpisodeStateError(f"{self.name} needs the simulator in process: attach(rollouts) before acting")
        if view.step > 0:
            self._arrived.append(np.rint(view.metrics["window_rate_rps"] * view.task.window_s))
        return np.array([self._plan(view, e, self._rollouts, self._branches) for e in range(view.num_episodes)])

    def _plan(self, view: AgentView, index: int, rollouts: Rollouts, branches: Branches) -> Array:
        candidates = self._candidates(view, index)
        num_steps = min(self.horizon_steps, view.task.steps - view.step)
        now_ps = view.step * view.task.window_ps
        until_ps = now_ps + num_steps * view.task.window_ps
        branches.split_off(rollouts, index, until_ps)
        scenarios = self.num_hypotheses
        if self._forecast is not None:
            arrived = np.array([row[index] for row in self._arrived])
            for i, hypothesis in enumerate(self._forecast.best_hypotheses(arrived, scenarios)):
                slots = slice(i * len(candidates), (i + 1) * len(candidates))
                branches.replace_future(slots, self._forecast.arrivals_between(int(hypothesis), now_ps, until_ps))
        rewards = branches.mean_reward(np.tile(self._plans(candidates, num_steps), (1, scenarios, 1)))
        best: Array = candidates[int(np.argmax(rewards.reshape(scenarios, -1).mean(axis=0)))]
        self._remember(index, best)
        return best

    def _plans(self, candidates: Array, num_steps: int) -> Array:
        """Knobs of every step and candidate: half of them go back to the base after a while, half stay."""
        plans = np.tile(candidates, (num_steps, 1, 1))
        if self._base is not None:
            plans[self.commit_steps :, 1::2] = self._base
        return plans

    def _remember(self, index: int, knobs: Array) -> None:
        earlier = [w for w in self._winners[index] if not np.array_equal(w, knobs)]
        self._winners[index] = [knobs, *earlier][:NUM_REMEMBERED]

    def _candidates(self, view: AgentView, index: int) -> Array:
        """The knobs in force, earlier winners, every single step from here, and random ones to fill up."""
        here, rng = view.knobs[index], self._rngs[index]
        active = [k for k, name in enumerate(KNOB_NAMES) if name in view.task.knobs.active]
        known = [here] if self._base is None else [here, self._base]
        found = [*known, *self._winners[index], *(n for k in active for n in _neighbours(here, k))][
            : self.num_candidates
        ]
        while len(found) < self.num_candidates:
            base = here if len(found) % 2 else found[int(rng.integers(len(found)))]
            turned = base.copy()
            for k in rng.permutation(active)[: 2 + int(rng.integers(len(active)))]:
                turned[k] = rng.choice(KNOBS[k].levels)
            found.append(turned)
        return np.array(found)


class ClairvoyantAgent(PlannerAgent):
    """The planner with the true traffic of the horizon: a ceiling, not a competitor."""

    name = "clairvoyant"
    sees_the_future = True
    horizon_steps = 12
    num_candidates = 32
    num_hypotheses = 1


def known_constant(task: Task) -> Array | None:
    """The tuned constant, which plans may fall back on; tasks without one do without."""
    try:
        return tuned_knobs(task)
    except WeightsNotFoundError:
        return None


def _neighbours(knobs: Array, k: int) -> list[Array]:
    """The next lower and the next higher level of one knob."""
    levels = np.array(KNOBS[k].levels)
    values = [*levels[levels < knobs[k]][-1:], *levels[levels > knobs[k]][:1]]
    return [np.concatenate((knobs[:k], [value], knobs[k + 1 :])) for value in values]
