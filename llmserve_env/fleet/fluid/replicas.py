"""Replicas that come and go, for many episodes side by side: counts per pool instead of single replicas.

The rules are those of the engine (docs/engine.md, Fleet) with one liberty: what happens within a window happens at
its start, except that a replica which becomes ready within a window serves for the rest of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array


@dataclass(frozen=True, slots=True)
class PoolTimes:
    """Delays of each pool, in windows."""

    wake: Array
    notice: Array
    flip: Array
    drain: Array
    """How long a replica that is sent away takes to finish its requests, on average."""
    partner: tuple[int, ...]
    """The pool whose replicas may change into this one's, or -1."""


class Replicas:
    """States of the replicas of every episode and pool; all counts have the shape [episode, pool]."""

    def __init__(self, initial: Array, limits: Array, times: PoolTimes, delays: Array, horizon: int) -> None:
        """`delays[episode, pool, launch]` in windows, negative for launches that fail; the longest fits `horizon`."""
        self._times, self._delays = times, delays
        self.limits = limits
        self.up = initial.astype(np.float64).copy()
        self.asleep = np.zeros_like(self.up)
        shape = (horizon, *self.up.shape)
        # Stored window by window, so that sums over windows run along the episodes.
        rings = [np.moveaxis(np.zeros(shape), 0, -1) for _ in range(6)]
        self._booting, self._failing, self._resting, self._resting_in_vain, self._share, self._leaving = rings
        """Due by window. `_share` has the part of that window in which replicas serve that become ready in it, and
        `_leaving` the replicas under notice."""
        self._launches = np.zeros(self.up.shape, np.int64)
        self.refused = np.zeros_like(self.up)
        self.taken = np.zeros_like(self.up)
        self.failed = np.zeros_like(self.up)
        self._drained = np.zeros_like(self.up)

    @property
    def pending(self) -> Array:
        """Replicas on their way into service."""
        return np.asarray(self._booting.sum(-1) + self._failing.sum(-1))

    @property
    def leaving(self) -> Array:
        """Replicas under notice."""
        return np.asarray(self._leaving.sum(-1))

    @property
    def serving(self) -> Array:
        """Replicas in service over this window, those that become ready within it in part."""
        return self.up + self._share[..., 0]

    @property
    def billed(self) -> Array:
        """Replicas billed as serving over this window."""
        return np.asarray(self.up + self.pending + self._to_rest() + self._leaving.sum(-1) + self._drained)

    def order(self, serving: Array, asleep: Array, capacity: Array) -> None:
        """Carry out the orders of a window under the capacity of its start."""
        self._shrink(capacity)
        self._drained = np.zeros_like(self.up)
        self._flip(serving)
        coming = self.up + self.pending
        self._fewer(np.maximum(coming - serving, 0.0))
        missing = np.maximum(serving - coming, 0.0)
        woken = np.minimum(missing, self.asleep)
        self.asleep -= woken
        rows, pools = np.nonzero(woken)
        self._schedule(self._booting, rows, pools, woken, self._times.wake)
        missing = missing - woken
        room = np.maximum(np.minimum(capacity, self.limits) - self._held(), 0.0)
        launched = np.minimum(missing, room)
        self.refused = missing - launched
        self._launch(launched, to_sleep=False)
        self._rest(asleep, room - launched)

    def advance(self) -> None:
        """End the window: what was due in it has happened."""
        self.up += self._booting[..., 0]
        self.asleep += self._resting[..., 0]
        self.failed = self._failing[..., 0].copy()
        rings = (self._booting, self._failing, self._resting, self._resting_in_vain, self._share, self._leaving)
        for ring in rings:
            ring[..., :-1] = ring[..., 1:]
            ring[..., -1] = 0.0

    def _to_rest(self) -> Array:
        """Replicas that boot to sleep, in vain or not."""
        return np.asarray(self._resting.sum(-1) + self._resting_in_vain.sum(-1))

    def _held(self) -> Array:
        """Replicas that are not OFF."""
        held = self.up + self.pending + self._to_rest() + self.asleep + self._leaving.sum(-1)
        return np.asarray(held)

    def _launch(self, launched: Array, to_sleep: bool) -> None:
        """Boot replicas with the next delays of their pools."""
        episode, pool = np.nonzero(launched)
        if len(episode) == 0:
            return
        counts = launched[episode, pool].astype(np.int64)
        rows, pools = np.repeat(episode, counts), np.repeat(pool, counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        delays = self._delays[rows, pools, (self._launches[rows, pools] + nth) % self._delays.shape[2]]
        self._launches[episode, pool] += counts
        fails = self._resting_in_vain if to_sleep else self._failing
        for ring, chosen in ((fails, delays < 0), (self._resting if to_sleep else self._booting, delays >= 0)):
            due = np.abs(delays[chosen])
            self._enter(ring, rows[chosen], pools[chosen], due, np.ones(len(due)))

    def _schedule(self, ring: Array, rows: Array, pools: Array, counts: Array, delay: Array) -> None:
        """Enter counts that all take the same time of their pool."""
        self._enter(ring, rows, pools, delay[pools], counts[rows, pools])

    def _enter(self, ring: Array, rows: Array, pools: Array, due: Array, counts: Array) -> None:
        """Enter replicas that are due after so many windows, and the part of their last window in which they serve."""
        window = np.minimum(due.astype(np.int64), ring.shape[2] - 1)
        np.add.at(ring, (rows, pools, window), counts)
        if ring is self._booting:
            np.add.at(self._share, (rows, pools, window), counts * (1.0 - np.clip(due - window, 0.0, 1.0)))

    def _cancel(self, ring: Array, excess: Array) -> Array:
        """Take back those that would be ready last; returns what is left to take."""
        if not excess.any():
            return excess
        for window in range(ring.shape[2] - 1, -1, -1):
            cut = np.minimum(ring[..., window], excess)
            if ring is self._booting:
                held = np.maximum(ring[..., window], 1.0)
                self._share[..., window] *= 1.0 - cut / held
            ring[..., window] -= cut
            excess = excess - cut
        return excess

    def _fewer(self, excess: Array) -> None:
        excess = self._cancel(self._failing, excess)
        excess = self._cancel(self._booting, excess)
        self.up -= excess
        self._drained = self._drained + excess * self._times.drain

    def _flip(self, serving: Array) -> None:
        """Change serving replicas of a pool that has too many into replicas of its partner that has too few."""
        for pool, partner in enumerate(self._times.partner):
            if partner < 0:
                continue
            coming = self.up + self.pending
            lack, spare = serving[:, pool] - coming[:, pool], coming[:, partner] - serving[:, partner]
            room = self.limits[pool] - self._held()[:, pool]
            flips = np.maximum(np.minimum(np.minimum(lack, spare), np.minimum(self.up[:, partner], room)), 0.0)
            self.up[:, partner] -= flips
            rows = np.nonzero(flips)[0]
            pools = np.full(len(rows), pool)
            self._enter(self._booting, rows, pools, self._times.flip[pools], flips[rows])

    def _rest(self, asleep: Array, room: Array) -> None:
        """Bring the number of sleeping replicas to its order."""
        resting = self.asleep + self._to_rest()
        excess = self._cancel(self._resting_in_vain, np.maximum(resting - asleep, 0.0))
        excess = self._cancel(self._resting, excess)
        self.asleep -= excess
        self._launch(np.minimum(np.maximum(asleep - resting, 0.0), np.maximum(room, 0.0)), to_sleep=True)

    def _shrink(self, capacity: Array) -> None:
        """Take away what exceeds the capacity: sleeping and booting replicas at once, serving ones after a notice."""
        leaving = self._leaving.sum(-1)
        excess = np.maximum(self._held() - leaving - capacity, 0.0)
        self.taken = np.zeros_like(self.up)
        if not excess.any():
            return
        cut = np.minimum(self.asleep, excess)
        self.asleep -= cut
        excess = self._cancel(self._resting_in_vain, excess - cut)
        excess = self._cancel(self._resting, excess)
        excess = self._cancel(self._failing, excess)
        excess = self._cancel(self._booting, excess)
        self.taken = np.minimum(self.up, excess)
        self.up -= self.taken
        rows, pools = np.nonzero(self.taken)
        self._schedule(self._leaving, rows, pools, self.taken, self._times.notice)
