"""A fleet that changes: pools of replicas, what the world does to them, and what an operator orders."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from llmserve_env.arrays import Array
from llmserve_env.units import NEVER_PS

if TYPE_CHECKING:
    from llmserve_env.engine.state import EngineState

Role = Literal["any", "prefill", "decode"]
ROLES: tuple[Role, ...] = get_args(Role)
NO_PARTNER = -1


@dataclass(frozen=True, slots=True)
class Pool:
    """Replicas of one kind and role, which come and go."""

    max_replicas: int
    initial: int = 0
    """Replicas that serve at the start of an episode."""
    role: Role = "any"
    wake_ps: int = 0
    """Time from asleep to serving."""
    drain_limit_ps: int = 0
    """How long a draining replica may continue with its requests before they are handed over."""
    notice_ps: int = 0
    """Time between the notice that a replica will be reclaimed and its end."""
    partner: int = NO_PARTNER
    """The pool whose replicas can be converted into replicas of this one."""
    flip_ps: int = 0
    """How long such a conversion takes."""

    def __post_init__(self) -> None:
        checks = (
            (self.max_replicas >= 1, "max_replicas must be at least 1", self.max_replicas),
            (0 <= self.initial <= self.max_replicas, "initial must be in 0..max_replicas", self.initial),
            (self.role in ROLES, f"role must be one of {', '.join(ROLES)}", self.role),
            *((getattr(self, n) >= 0, f"{n} must be 0 or more", getattr(self, n)) for n in DELAYS),
        )
        for ok, rule, value in checks:
            if not ok:
                raise ValueError(f"{rule}; got {value}")


DELAYS = ("wake_ps", "drain_limit_ps", "notice_ps", "flip_ps")

CAPACITY_DTYPE = np.dtype([("at_ps", "i8"), ("pool", "i8"), ("replicas", "i8")])

OFF, BOOTING, WAKING, UP, DRAINING, ASLEEP = range(6)
STATE_NAMES = ("OFF", "BOOTING", "WAKING", "UP", "DRAINING", "ASLEEP")
LIFE_DTYPE = np.dtype(
    [
        ("state", "i8"),
        ("pool", "i8"),
        ("due_at_ps", "i8"),
        ("since_ps", "i8"),
        ("drained_from_ps", "i8"),
        ("is_to_sleep", "i8"),
        ("fails", "i8"),
        ("is_noticed", "i8"),
    ]
)
"""Where a replica of a fleet stands; it is billed up to `since_ps`, and its phase ends at `due_at_ps`."""

POOL_DTYPE = np.dtype(
    [
        ("first", "i8"),
        ("stop", "i8"),
        ("wake_ps", "i8"),
        ("drain_limit_ps", "i8"),
        ("notice_ps", "i8"),
        ("partner", "i8"),
        ("flip_ps", "i8"),
        ("capacity", "i8"),
        ("serving_order", "i8"),
        ("asleep_order", "i8"),
        ("launches", "i8"),
        ("refused", "i8"),
        ("failed", "i8"),
        ("taken", "i8"),
        ("serving_ps", "i8"),
        ("asleep_ps", "i8"),
    ]
)
"""A pool: its replicas `first` to `stop`, its rules, its orders, and totals since the start of the episode."""


@dataclass(frozen=True, slots=True)
class FleetScript:
    """The external events of one episode, which no order can change."""

    launch_delays_ps: Array
    """[pool, launch]: how long each launch takes; negative for one that fails after that time."""
    capacity: Array = field(default_factory=lambda: np.zeros(0, CAPACITY_DTYPE))
    """Changes of the number of replicas that a pool may have, ordered by (time, pool)."""
    initial: tuple[int, ...] | None = None
    """Replicas of each pool that serve at the start; None for the `initial` of each pool."""

    def check(self, num_pools: int) -> None:
        """Raise a ValueError unless the script fits this many pools."""
        shape = self.launch_delays_ps.shape
        if len(shape) != 2 or shape[0] != num_pools or shape[1] < 1:
            raise ValueError(f"launch_delays_ps must be [{num_pools} pools, at least 1 launch]; got shape {shape}")
        if np.any(self.launch_delays_ps == 0):
            raise ValueError("launch_delays_ps must not contain 0: a launch takes time, or fails after some")
        pools, at_ps = self.capacity["pool"], self.capacity["at_ps"]
        if np.any((pools < 0) | (pools >= num_pools)):
            raise ValueError(f"capacity names pool {int(pools.max())}; there are {num_pools}")
        if np.any(np.diff(at_ps) < 0):
            raise ValueError("capacity must be ordered by time")
        if self.initial is not None and len(self.initial) != num_pools:
            raise ValueError(f"initial needs {num_pools} counts, one per pool; got {self.initial}")


@dataclass(frozen=True, slots=True)
class FleetOrders:
    """How many replicas of each pool should serve, and how many should sleep, in the next window."""

    serving: tuple[int, ...]
    asleep: tuple[int, ...]


def fill_pools(rows: Array, replicas: Array, pools: tuple[Pool, ...]) -> None:
    """Write the pools into their records, and put their replicas at the start of an episode."""
    first = 0
    for row, pool, number in zip(rows, pools, range(len(pools)), strict=True):
        row["first"], row["stop"] = first, first + pool.max_replicas
        for name in (*DELAYS, "partner"):
            row[name] = getattr(pool, name)
        row["capacity"] = pool.max_replicas
        lives = replicas[first : first + pool.max_replicas]
        lives["is_prefill"] = pool.role == "prefill"
        lives["life"]["pool"] = number
        first += pool.max_replicas
    replicas["life"]["due_at_ps"] = NEVER_PS
    start_with(rows, replicas, tuple(pool.initial for pool in pools))


def start_with(rows: Array, replicas: Array, initial: tuple[int, ...]) -> None:
    """Set how many replicas of each pool, counted from its first, serve at the start."""
    for row, count in zip(rows, initial, strict=True):
        size = int(row["stop"] - row["first"])
        if not 0 <= count <= size:
            raise ValueError(f"initial must be in 0..max_replicas, {size}; got {count}")
        lives = replicas[row["first"] : row["stop"]]
        lives["in_service"] = np.arange(size) < count
        lives["life"]["state"] = np.where(lives["in_service"], UP, OFF)
        row["serving_order"] = count


def load_script(state: EngineState, index: int, script: FleetScript) -> None:
    """Write a script into the arrays of one environment, which is at time zero."""
    script.check(state.launch_delays.shape[1])
    state.launch_delays[index] = script.launch_delays_ps
    state.capacity[index, : len(script.capacity)] = script.capacity
    state.environment[index]["num_changes"] = len(script.capacity)
    if script.initial is not None:
        start_with(state.pools[index], state.replicas[index], script.initial)
