"""Copies of one running episode that may each be continued differently."""

from __future__ import annotations

import numpy as np

from llmserve_env.agents.plans import Plans
from llmserve_env.arrays import Array
from llmserve_env.engine.knobs import named
from llmserve_env.engine.layout import ABANDONED, FINISHED, REJECTED
from llmserve_env.engine.state import MUTABLE_FIELDS, pending_progress
from llmserve_env.env.episode_batch import EpisodeBatch

_PER_REQUEST = ("progress", "requests")
_WHOLE = tuple(name for name in MUTABLE_FIELDS if name not in _PER_REQUEST)


def _rows_as_bytes(array: Array) -> Array:
    """Records as bytes along a last axis: copying records field by field is far slower."""
    return array.view(np.uint8).reshape(*array.shape, array.dtype.itemsize)


class Branches(EpisodeBatch):
    """Slots that start from the present state of another batch's episode and then advance independently."""

    def split_off(self, source: EpisodeBatch, index: int, until_ps: int) -> None:
        """Set every slot to the present state of episode `index`, with that episode's traffic up to `until_ps`."""
        self.engine.make_room(source.engine.max_requests)
        mine, theirs = self.engine.state, source.engine.state
        for name in _WHOLE:
            getattr(mine, name)[...].reshape(self.num_episodes, -1).view(np.uint8)[:] = (
                getattr(theirs, name)[index].reshape(-1).view(np.uint8)
            )
        first, last = self._live_rows(source, index, until_ps)
        for name in _PER_REQUEST:
            _rows_as_bytes(getattr(mine, name))[:, first:last] = _rows_as_bytes(getattr(theirs, name))[
                index, first:last
            ]
        self.control[:] = source.control[index]
        self.simulation.resume_clock()

    def _live_rows(self, source: EpisodeBatch, index: int, until_ps: int) -> tuple[int, int]:
        """Requests that may still matter before `until_ps`; the rest need no copy."""
        environment, state = source.engine.state.environment[index], source.engine.state
        arrived, total = int(environment["next_arrival"]), int(environment["num_requests"])
        is_over = np.isin(state.progress["status"][index, :arrived], (FINISHED, REJECTED, ABANDONED))
        alive = np.flatnonzero(~is_over)
        first = min(int(alive[0]) if len(alive) else arrived, int(environment["judge_cursor"]))
        arrivals = state.requests["arrival_at_ps"][index, arrived:total]
        # One more than the horizon needs, because the engine looks one arrival ahead.
        return first, min(arrived + int(np.searchsorted(arrivals, until_ps)) + 1, total)

    def replace_future(self, slots: slice, coming: Array) -> None:
        """Let these request records arrive in the slots, instead of the episode's own future traffic."""
        state = self.engine.state
        arrived = int(state.environment["next_arrival"][0])
        self.engine.make_room(arrived + len(coming))
        state = self.engine.state
        rows = slice(arrived, arrived + len(coming))
        _rows_as_bytes(state.requests)[slots, rows] = _rows_as_bytes(coming)
        _rows_as_bytes(state.progress)[slots, rows] = _rows_as_bytes(pending_progress())
        state.environment["num_requests"][slots] = arrived + len(coming)

    def mean_reward(self, plans: Plans, used: float) -> Array:
        """Mean reward of each slot under its plan; `used` is the share of the KV memory in use now."""
        total, in_use = np.zeros(self.num_episodes), np.full(self.num_episodes, used)
        for step in range(len(plans.knobs)):
            self.step(plans.at(step, in_use))
            total += self.terms["reward"]
            in_use = self.metrics["kv_cache_occupancy"] * named(self.knobs)["kv_budget_fraction"]
        return total / len(plans.knobs)
