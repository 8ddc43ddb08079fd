"""Episodes of a fleet on the surrogate, as the trainer plays them: corrections in, dollars beyond the rule's out."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtr

from llmserve_env.arrays import Array
from llmserve_env.fleet.corrected import KEPT, CorrectedRule, action_names
from llmserve_env.fleet.fluid.calibration import Calibration
from llmserve_env.fleet.fluid.episodes import FluidEpisodes
from llmserve_env.fleet.fluid.need import ahead, needs
from llmserve_env.fleet.fluid.worlds import Worlds
from llmserve_env.fleet.sections import PriceSpec
from llmserve_env.fleet.task import FleetTask

FUTURE_WINDOWS = 16
MOST_REWARD = 40.0
"""A collapse within one window is bad enough at this; more would drown what is learned elsewhere."""
OUTLOOK = 1.0 / 3.0
"""Part of an episode that is believed to go as the first rung allows, before what was broken so far is projected."""
FIRST_KEPT = 0.4
"""Below zero, replicas that are kept teach nothing, so an untrained policy keeps some."""
SPREAD, LEAST_SPREAD = 1.0, 0.2
"""How far an episode may end from where it seems to go, at its start and at its end, in units of what the first rung
allows to break."""


def broken_promise_price(projected: Array, left: float, prices: PriceSpec) -> Array:
    """What a further broken promise adds to the credits that are to be expected, as a share of the income.

    `projected` is what will be broken in the whole episode, in units of what the first rung allows; `left` is the part
    of the episode that is still to come. The outcome is taken as normal around the projection, so that the cliff at the
    rung is seen from afar: promises that are safe to break cost nothing, and most those that decide about the rung.
    """
    rungs = prices.credits
    if not rungs:
        return np.zeros_like(projected)
    first, *rest = rungs
    slope = (rest[0].share - first.share) / (first.below - rest[0].below) if rest else 0.0
    spread = LEAST_SPREAD + (SPREAD - LEAST_SPREAD) * left**0.5
    over = (projected - 1.0) / spread
    cliff = first.share / (1.0 - first.below) * np.exp(-0.5 * over**2) / (spread * np.sqrt(2.0 * np.pi))
    return np.asarray(cliff + slope * ndtr(over))


class _Group:
    """Episodes that begin together."""

    def __init__(self, task: FleetTask, worlds: Worlds, calibration: Calibration, rule: Mapping[str, float]) -> None:
        self.task, self._worlds, self._calibration, self._rule_settings = task, worlds, calibration, rule

    def begin(self, rows: Array) -> None:
        self.rows = rows
        self.episodes = FluidEpisodes(self.task, self._worlds, self._calibration, rows)
        self.rule = CorrectedRule(self.task, self._rule_settings, len(rows))
        lead, arrivals = self._worlds.lead_windows, self._worlds.per_window["arrivals"][rows]
        self._judged = arrivals[:, lead:].sum(axis=1)
        self._income = self._worlds.per_window["income_usd"][rows][:, lead:].sum(axis=1)
        self.step_number, self._worth = 0, np.zeros(len(rows))

    def step(self, corrections: Array) -> Array:
        """Dollars of the step; a broken promise costs what it adds to the credits that are to be expected."""
        episodes, before = self.episodes, self.episodes.judged - self.episodes.met
        price = broken_promise_price(self._projected(), 1.0 - self.step_number / self.task.steps, self.task.prices)
        episodes.step(self.rule.decide(corrections))
        broken = (episodes.judged - episodes.met - before) / np.maximum(self._judged, 1.0)
        worth = episodes.interactive_usd + episodes.batch_usd - episodes.bill_usd
        gained, self._worth = worth - self._worth, worth
        self.step_number += 1
        return np.asarray(gained - price * broken * self._income)

    def _projected(self) -> Array:
        """Promises broken in the whole episode if it goes on as so far, in units of what the first rung allows."""
        episodes, rungs = self.episodes, self.task.prices.credits
        allowed = (1.0 - rungs[0].below if rungs else 1.0) * np.maximum(self._judged, 1.0)
        played = episodes.judged / np.maximum(self._judged, 1.0)
        broken = (episodes.judged - episodes.met) / allowed
        return np.asarray(broken + (broken + OUTLOOK) / (played + OUTLOOK) * (1.0 - played))


class FleetCorrections:
    """Groups of episodes at different times of the day; those that end begin on other worlds."""

    def __init__(
        self,
        task: FleetTask,
        worlds: Worlds,
        calibration: Calibration,
        rule: Mapping[str, float],
        groups: int,
        group_size: int,
        seed: int,
    ) -> None:
        self._task, self._worlds, self._rng = task, worlds, np.random.default_rng(seed)
        self._groups = [_Group(task, worlds, calibration, rule) for _ in range(groups)]
        self._size, self.num_envs = group_size, groups * group_size
        self._need = needs(worlds, calibration.flow)
        self._usd_scale = 0.2 * worlds.per_window["income_usd"].sum() / len(worlds) / task.steps
        self._rule_usd = self._play_rule(rule, calibration)
        for number, group in enumerate(self._groups):
            group.begin(self._draw())
            self._skip(group, number * task.steps // groups)
        kept = [name.endswith(KEPT) for name in action_names(task)]
        self.first_corrections = FIRST_KEPT * np.array(kept, np.float32)
        self.num_actions, self.num_features = self._groups[0].rule.num_actions, self._groups[0].rule.num_features
        self.num_future = FUTURE_WINDOWS * len(self._need)

    def _draw(self) -> Array:
        return self._rng.integers(0, len(self._worlds), self._size)

    def _play_rule(self, rule: Mapping[str, float], calibration: Calibration) -> Array:
        """[world, step]: dollars of the rule without corrections."""
        group = _Group(self._task, self._worlds, calibration, rule)
        group.begin(np.arange(len(self._worlds)))
        none, rows = np.zeros((len(self._worlds), group.rule.num_actions)), []
        for _ in range(self._task.steps):
            group.rule.look(group.episodes.observe())
            rows.append(group.step(none))
        self.rule_net_usd = group.episodes.net_usd
        return np.stack(rows, axis=1)

    def _skip(self, group: _Group, steps: int) -> None:
        none = np.zeros((self._size, group.rule.num_actions))
        for _ in range(steps):
            group.rule.look(group.episodes.observe())
            group.step(none)

    def observe(self) -> tuple[Array, Array]:
        """What the policy sees, and the loads to come."""
        seen = [group.rule.look(group.episodes.observe()) for group in self._groups]
        futures = [self._future(group) for group in self._groups]
        self._seen = np.concatenate(seen)
        return self._seen, np.concatenate(futures)

    def _future(self, group: _Group) -> Array:
        window = group.episodes.window
        usual = {role: each.mean() for role, each in self._need.items()}
        parts = [ahead(each, group.rows, window, FUTURE_WINDOWS) / usual[role] for role, each in self._need.items()]
        return np.concatenate(parts, axis=1)

    def step(self, corrections: Array) -> tuple[Array, Array]:
        """Dollars beyond the rule's on the same traffic, in units of usual income, and which episodes ended."""
        rewards, ends = [], []
        for number, group in enumerate(self._groups):
            part = corrections[number * self._size : (number + 1) * self._size]
            at = group.step_number
            gained = group.step(part) - self._rule_usd[group.rows, at]
            rewards.append(np.clip(gained / self._usd_scale, -MOST_REWARD, MOST_REWARD))
            is_over = group.step_number == self._task.steps
            ends.append(np.full(self._size, is_over))
            if is_over:
                group.begin(self._draw())
        return np.concatenate(rewards), np.concatenate(ends)
