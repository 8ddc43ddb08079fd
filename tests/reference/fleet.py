"""Replicas that come and go: orders, launches, drains, capacity that falls, and the bill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .context import Context
from .inputs import NEVER, Orders, PoolSpec, Script
from .replica import Replica

OFF, BOOTING, WAKING, UP, DRAINING, ASLEEP = "OFF", "BOOTING", "WAKING", "UP", "DRAINING", "ASLEEP"
BILLED = (BOOTING, WAKING, UP, DRAINING)


@dataclass(slots=True)
class Life:
    """Where one replica of a fleet stands."""

    replica: Replica
    state: str
    due_at_ps: int = NEVER
    """When BOOTING, WAKING or DRAINING ends."""
    since_ps: int = 0
    """Billed up to here."""
    drained_from_ps: int = 0
    is_to_sleep: bool = False
    fails: bool = False
    is_noticed: bool = False


@dataclass(slots=True)
class PoolState:
    """A pool, its replicas in order of their index, and its totals."""

    spec: PoolSpec
    lives: list[Life]
    capacity: int
    serving_order: int
    asleep_order: int = 0
    launches: int = 0
    refused: int = 0
    failed: int = 0
    taken: int = 0
    serving_ps: int = 0
    asleep_ps: int = 0

    def of(self, *states: str) -> list[Life]:
        """Replicas in these states, by index."""
        return [life for life in self.lives if life.state in states]

    @property
    def coming(self) -> int:
        """Replicas that serve, or will."""
        return sum(1 for life in self.of(UP, WAKING, BOOTING) if not life.is_to_sleep)

    @property
    def resting(self) -> list[Life]:
        """Replicas that sleep, or will."""
        return [life for life in self.of(ASLEEP, BOOTING) if life.state == ASLEEP or life.is_to_sleep]


class Fleet:
    """The pools of a deployment. `evacuate` and `reroute` belong to the router."""

    def __init__(
        self,
        context: Context,
        script: Script,
        replicas: list[Replica],
        evacuate: Callable[[Replica, int], None],
        reroute: Callable[[Replica, int], None],
    ) -> None:
        self.context, self.script = context, script
        self.evacuate, self.reroute = evacuate, reroute
        self.pools: list[PoolState] = []
        self.next_change = 0
        left = iter(replicas)
        specs = context.deployment.pools
        initial = tuple(spec.initial for spec in specs) if script.initial is None else script.initial
        for spec, count in zip(specs, initial, strict=True):
            lives = [Life(next(left), OFF) for _ in range(spec.max_replicas)]
            for life in lives:
                life.replica.is_prefill = spec.role == "prefill"
                life.replica.in_service = False
            for life in lives[:count]:
                life.state = UP
                life.replica.in_service = True
            self.pools.append(PoolState(spec, lives, spec.max_replicas, count))

    @property
    def all(self) -> list[tuple[PoolState, Life]]:
        """Every replica with its pool, by index."""
        return [(pool, life) for pool in self.pools for life in pool.lives]

    def next_event_at(self) -> int:
        """When the fleet changes next by itself."""
        times = [life.due_at_ps for _, life in self.all]
        if self.next_change < len(self.script.capacity):
            times.append(int(self.script.capacity[self.next_change]["at_ps"]))
        return min(times)

    def handle_event(self, t: int, tier: int) -> None:
        """The first change due at `t`."""
        for pool, life in self.all:
            if life.due_at_ps == t:
                self._end_phase(pool, life, t, tier)
                return
        change = self.script.capacity[self.next_change]
        self.next_change += 1
        self._set_capacity(self.pools[int(change["pool"])], int(change["replicas"]), t)

    def obey(self, orders: Orders, t: int) -> None:
        """Orders at the start of a window."""
        for pool, serving, asleep in zip(self.pools, orders.serving, orders.asleep, strict=True):
            pool.serving_order, pool.asleep_order = serving, asleep
        for pool in self.pools:
            if pool.spec.partner >= 0:
                self._flip(pool, self.pools[pool.spec.partner], t)
        for pool in self.pools:
            self._more(pool, t)
            self._fewer(pool, t)
            self._rest(pool, t)

    def close(self, t: int) -> None:
        """The end of a window: drained replicas leave, and everything is billed."""
        for pool, life in self.all:
            replica = life.replica
            if life.state == DRAINING and replica.load == 0 and not replica.iterations:
                empty_at = min(max(life.drained_from_ps, replica.free_at_ps), t)
                sleeps = len(pool.resting) < pool.asleep_order and not life.is_noticed
                self._leave(pool, life, ASLEEP if sleeps else OFF, empty_at)
        for pool, life in self.all:
            self._bill(pool, life, t)

    def _bill(self, pool: PoolState, life: Life, t: int) -> None:
        if life.state in BILLED:
            pool.serving_ps += t - life.since_ps
        elif life.state == ASLEEP:
            pool.asleep_ps += t - life.since_ps
        life.since_ps = t

    def _become(self, pool: PoolState, life: Life, state: str, t: int, due_at_ps: int = NEVER) -> None:
        self._bill(pool, life, t)
        life.state, life.due_at_ps, life.is_to_sleep, life.fails = state, due_at_ps, False, False
        life.replica.in_service = state == UP

    def _leave(self, pool: PoolState, life: Life, state: str, t: int) -> None:
        """OFF or ASLEEP: whatever is here goes elsewhere, and the prefix cache is lost."""
        self._become(pool, life, state, t)
        life.is_noticed = False
        self.evacuate(life.replica, t)

    def _launch(self, pool: PoolState, life: Life, t: int, is_to_sleep: bool) -> None:
        delays = self.script.launch_delays_ps[self.pools.index(pool)]
        delay = int(delays[pool.launches % len(delays)])
        pool.launches += 1
        self._become(pool, life, BOOTING, t, t + abs(delay))
        life.is_to_sleep, life.fails = is_to_sleep, delay < 0

    def _may_launch(self, pool: PoolState) -> bool:
        return bool(pool.of(OFF)) and len(pool.lives) - len(pool.of(OFF)) < pool.capacity

    def _drain(self, pool: PoolState, life: Life, t: int, limit_ps: int) -> None:
        self._become(pool, life, DRAINING, t, t + limit_ps)
        life.drained_from_ps = t
        self.reroute(life.replica, t)

    def _least_loaded(self, lives: list[Life]) -> Life:
        return min(lives, key=lambda life: (life.replica.load, -life.replica.index))

    def _flip(self, pool: PoolState, partner: PoolState, t: int) -> None:
        while (
            pool.coming < pool.serving_order
            and partner.coming > partner.serving_order
            and partner.of(UP)
            and pool.of(OFF)
        ):
            self._leave(partner, self._least_loaded(partner.of(UP)), OFF, t)
            self._become(pool, pool.of(OFF)[0], WAKING, t, t + pool.spec.flip_ps)

    def _more(self, pool: PoolState, t: int) -> None:
        while pool.coming < pool.serving_order:
            staying = [life for life in pool.of(DRAINING) if not life.is_noticed]
            if staying:
                self._become(pool, staying[0], UP, t)
            elif pool.of(ASLEEP):
                self._become(pool, pool.of(ASLEEP)[0], WAKING, t, t + pool.spec.wake_ps)
            elif self._may_launch(pool):
                self._launch(pool, pool.of(OFF)[0], t, is_to_sleep=False)
            else:
                pool.refused += pool.serving_order - pool.coming
                return

    def _fewer(self, pool: PoolState, t: int) -> None:
        while pool.coming > pool.serving_order:
            booting = [life for life in pool.of(BOOTING) if not life.is_to_sleep]
            if booting:
                self._leave(pool, max(booting, key=lambda x: (x.due_at_ps, x.replica.index)), OFF, t)
            elif pool.of(WAKING):
                self._leave(pool, max(pool.of(WAKING), key=lambda x: (x.due_at_ps, x.replica.index)), ASLEEP, t)
            else:
                self._drain(pool, self._least_loaded(pool.of(UP)), t, pool.spec.drain_limit_ps)

    def _rest(self, pool: PoolState, t: int) -> None:
        while len(pool.resting) > pool.asleep_order:
            self._leave(pool, pool.resting[-1], OFF, t)
        while len(pool.resting) < pool.asleep_order:
            if not self._may_launch(pool):
                pool.refused += pool.asleep_order - len(pool.resting)
                return
            self._launch(pool, pool.of(OFF)[0], t, is_to_sleep=True)

    def _end_phase(self, pool: PoolState, life: Life, t: int, tier: int) -> None:
        if life.state == DRAINING:
            self._leave(pool, life, OFF, t)
        elif life.fails:
            pool.failed += 1
            self._leave(pool, life, OFF, t)
        elif life.is_to_sleep:
            self._leave(pool, life, ASLEEP, t)
        else:
            self._become(pool, life, UP, t)
            life.replica.tier = tier
            life.replica.available_at_ps = life.replica.free_at_ps = t

    def _set_capacity(self, pool: PoolState, capacity: int, t: int) -> None:
        pool.capacity = capacity
        while sum(1 for life in pool.lives if life.state != OFF and not life.is_noticed) > capacity:
            for state in (ASLEEP, BOOTING, WAKING, DRAINING, UP):
                found = [life for life in pool.of(state) if not life.is_noticed]
                if found:
                    break
            if state in (ASLEEP, BOOTING, WAKING):
                self._leave(pool, found[-1], OFF, t)
                continue
            pool.taken += 1
            found[-1].is_noticed = True
            self._drain(pool, found[-1], t, pool.spec.notice_ps)
