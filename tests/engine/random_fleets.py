"""Random fleets whose replicas boot, drain, sleep, flip and are taken away, on top of the random deployments."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from llmserve_env.engine.fleet import CAPACITY_DTYPE, FleetOrders, FleetScript, Pool, Role
from llmserve_env.units import PS_PER_MS
from tests.engine.random_cases import Case, random_case

ROLES: tuple[tuple[Role, ...], ...] = (("any",), ("any", "any"), ("prefill", "decode"), ("any", "prefill", "decode"))


@dataclass(frozen=True)
class FleetCase:
    """A case with a fleet: its script, and the orders of each window."""

    case: Case
    script: FleetScript
    orders: tuple[FleetOrders, ...]


def _pools(rng: np.random.Generator) -> tuple[Pool, ...]:
    roles = ROLES[int(rng.integers(len(ROLES)))]

    def delay() -> int:
        return int(rng.integers(0, 600)) * PS_PER_MS

    pools = []
    for number, role in enumerate(roles):
        max_replicas = int(rng.integers(1, 5))
        partner = int(rng.integers(len(roles))) if rng.random() < 0.5 else -1
        pools.append(
            Pool(
                max_replicas,
                int(rng.integers(0, max_replicas + 1)),
                role,
                wake_ps=delay(),
                drain_limit_ps=delay(),
                notice_ps=delay(),
                partner=-1 if partner == number else partner,
                flip_ps=delay(),
            )
        )
    return tuple(pools)


def _script(rng: np.random.Generator, pools: tuple[Pool, ...], horizon_ps: int) -> FleetScript:
    delays = rng.integers(1, 900, size=(len(pools), int(rng.integers(1, 9)))) * PS_PER_MS
    delays = np.where(rng.random(delays.shape) < 0.2, -delays, delays)
    changes = np.zeros(int(rng.integers(0, 9)), CAPACITY_DTYPE)
    changes["at_ps"] = np.sort(rng.integers(0, horizon_ps + 1, size=len(changes)))
    changes["pool"] = rng.integers(len(pools), size=len(changes))
    changes["replicas"] = rng.integers(0, 5, size=len(changes))
    initial = tuple(int(rng.integers(0, pool.max_replicas + 1)) for pool in pools) if rng.random() < 0.3 else None
    return FleetScript(delays, changes, initial)


def _orders(rng: np.random.Generator, pools: tuple[Pool, ...]) -> FleetOrders:
    serving = tuple(int(rng.integers(0, pool.max_replicas + 1)) for pool in pools)
    left = [pool.max_replicas - count for pool, count in zip(pools, serving, strict=True)]
    return FleetOrders(serving, tuple(int(rng.integers(0, n + 1)) if rng.random() < 0.4 else 0 for n in left))


def random_fleet(seed: int) -> FleetCase:
    """A fleet that depends on nothing but its seed."""
    rng = np.random.default_rng(seed + 10_000_000)
    case, pools = random_case(seed), _pools(rng)
    deployment = replace(
        case.deployment,
        pools=pools,
        num_replicas=sum(pool.max_replicas for pool in pools),
        num_prefill_replicas=0,
        affinity_slack=int(rng.choice([-1, 0, 2])),
    )
    orders = [_orders(rng, pools)]
    for _ in case.windows[1:]:
        orders.append(_orders(rng, pools) if rng.random() < 0.6 else orders[-1])
    script = _script(rng, pools, case.windows[-2][0])
    return FleetCase(replace(case, deployment=deployment), script, tuple(orders))
