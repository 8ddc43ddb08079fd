"""Replicas that come and go: orders, launches, drains, capacity that falls, and the bill."""

from __future__ import annotations

from llmserve_env.engine.fleet import ASLEEP, BOOTING, DRAINING, NO_PARTNER, OFF, UP, WAKING
from llmserve_env.engine.kernels.compilation import rare_kernel
from llmserve_env.engine.kernels.routing import evacuate, move_waiting
from llmserve_env.units import NEVER_PS


@rare_kernel
def bill(sim, r, at_ps):
    """Add the time since the last bill to the pool's account."""
    life = sim.replicas[r].life
    pool = sim.pools[life.pool]
    if life.state == ASLEEP:
        pool.asleep_ps += at_ps - life.since_ps
    elif life.state != OFF:
        pool.serving_ps += at_ps - life.since_ps
    life.since_ps = at_ps


@rare_kernel
def become(sim, r, state, at_ps, due_at_ps):
    """Replica r enters a state that ends at `due_at_ps`."""
    bill(sim, r, at_ps)
    life = sim.replicas[r].life
    life.state, life.due_at_ps, life.is_to_sleep, life.fails = state, due_at_ps, 0, 0
    sim.replicas[r].in_service = state == UP


@rare_kernel
def leave(sim, r, state, at_ps):
    """Replica r is OFF or ASLEEP: whatever is here goes elsewhere, and the prefix cache is lost."""
    become(sim, r, state, at_ps, NEVER_PS)
    sim.replicas[r].life.is_noticed = 0
    evacuate(sim, r, at_ps)


@rare_kernel
def drain(sim, r, at_ps, limit_ps):
    """Replica r takes no more requests and has so long for those it runs."""
    become(sim, r, DRAINING, at_ps, at_ps + limit_ps)
    sim.replicas[r].life.drained_from_ps = at_ps
    move_waiting(sim, r, at_ps, False, False)


@rare_kernel
def launch_replica(sim, r, at_ps, is_to_sleep):
    """Boot replica r, for as long as the script says."""
    life = sim.replicas[r].life
    pool = sim.pools[life.pool]
    delay = sim.launch_delays[life.pool, pool.launches % sim.launch_delays.shape[1]]
    pool.launches += 1
    become(sim, r, BOOTING, at_ps, at_ps + abs(delay))
    life.is_to_sleep, life.fails = is_to_sleep, delay < 0


@rare_kernel
def first_in(sim, pool, state, is_to_sleep):
    """The replica of a pool with the lowest index in this state and without notice, or -1."""
    for r in range(pool.first, pool.stop):
        life = sim.replicas[r].life
        if life.state == state and life.is_to_sleep == is_to_sleep and not life.is_noticed:
            return r
    return -1


@rare_kernel
def last_in(sim, pool, state):
    """The replica of a pool with the highest index in this state and without notice, or -1."""
    for r in range(pool.stop - 1, pool.first - 1, -1):
        if sim.replicas[r].life.state == state and not sim.replicas[r].life.is_noticed:
            return r
    return -1


@rare_kernel
def latest_in(sim, pool, state):
    """The replica of a pool in this state, to serve, whose phase ends last; at equal times the highest index; or -1."""
    best = -1
    for r in range(pool.first, pool.stop):
        life = sim.replicas[r].life
        is_one = life.state == state and not life.is_to_sleep
        if is_one and (best < 0 or life.due_at_ps >= sim.replicas[best].life.due_at_ps):
            best = r
    return best


@rare_kernel
def least_loaded_up(sim, pool):
    """The UP replica of a pool with the least load; at equal load the highest index; or -1."""
    best, best_load = -1, 0
    for r in range(pool.first, pool.stop):
        replica = sim.replicas[r]
        load = replica.num_running + replica.num_waiting
        if replica.life.state == UP and (best < 0 or load <= best_load):
            best, best_load = r, load
    return best


@rare_kernel
def count_coming(sim, pool):
    """Replicas of a pool that serve, or will."""
    found = 0
    for r in range(pool.first, pool.stop):
        life = sim.replicas[r].life
        found += life.state == UP or life.state == WAKING or (life.state == BOOTING and not life.is_to_sleep)
    return found


@rare_kernel
def count_resting(sim, pool):
    """Replicas of a pool that sleep, or will."""
    found = 0
    for r in range(pool.first, pool.stop):
        life = sim.replicas[r].life
        found += life.state == ASLEEP or (life.state == BOOTING and life.is_to_sleep)
    return found


@rare_kernel
def next_launch(sim, pool):
    """The replica of a pool to boot next, or -1 if there is none or the pool is at its capacity."""
    in_use = 0
    for r in range(pool.first, pool.stop):
        in_use += sim.replicas[r].life.state != OFF
    return first_in(sim, pool, OFF, 0) if in_use < pool.capacity else -1


@rare_kernel
def flip(sim, pool, partner, at_ps):
    """Turn replicas that the partner has too many of into this pool's."""
    while count_coming(sim, pool) < pool.serving_order and count_coming(sim, partner) > partner.serving_order:
        given, taken = least_loaded_up(sim, partner), first_in(sim, pool, OFF, 0)
        if given < 0 or taken < 0:
            return
        leave(sim, given, OFF, at_ps)
        become(sim, taken, WAKING, at_ps, at_ps + pool.flip_ps)


@rare_kernel
def add_replicas(sim, pool, at_ps):
    """Orders, step 1."""
    while count_coming(sim, pool) < pool.serving_order:
        draining, asleep = first_in(sim, pool, DRAINING, 0), first_in(sim, pool, ASLEEP, 0)
        if draining >= 0:
            become(sim, draining, UP, at_ps, NEVER_PS)
        elif asleep >= 0:
            become(sim, asleep, WAKING, at_ps, at_ps + pool.wake_ps)
        else:
            r = next_launch(sim, pool)
            if r < 0:
                pool.refused += pool.serving_order - count_coming(sim, pool)
                return
            launch_replica(sim, r, at_ps, 0)


@rare_kernel
def remove_replicas(sim, pool, at_ps):
    """Orders, step 2."""
    while count_coming(sim, pool) > pool.serving_order:
        booting, waking = latest_in(sim, pool, BOOTING), latest_in(sim, pool, WAKING)
        if booting >= 0:
            leave(sim, booting, OFF, at_ps)
        elif waking >= 0:
            leave(sim, waking, ASLEEP, at_ps)
        else:
            drain(sim, least_loaded_up(sim, pool), at_ps, pool.drain_limit_ps)


@rare_kernel
def rest_replicas(sim, pool, at_ps):
    """Orders, step 3."""
    while count_resting(sim, pool) > pool.asleep_order:
        r = pool.stop - 1
        life = sim.replicas[r].life
        while not (life.state == ASLEEP or (life.state == BOOTING and life.is_to_sleep)):
            r -= 1
            life = sim.replicas[r].life
        leave(sim, r, OFF, at_ps)
    while count_resting(sim, pool) < pool.asleep_order:
        r = next_launch(sim, pool)
        if r < 0:
            pool.refused += pool.asleep_order - count_resting(sim, pool)
            return
        launch_replica(sim, r, at_ps, 1)


@rare_kernel
def obey_orders(sim, at_ps):
    """What the orders change at the start of a window."""
    for p in range(sim.deployment.num_pools):
        if sim.pools[p].partner != NO_PARTNER:
            flip(sim, sim.pools[p], sim.pools[sim.pools[p].partner], at_ps)
    for p in range(sim.deployment.num_pools):
        add_replicas(sim, sim.pools[p], at_ps)
        remove_replicas(sim, sim.pools[p], at_ps)
        rest_replicas(sim, sim.pools[p], at_ps)
    find_next_change(sim)


@rare_kernel
def find_next_change(sim):
    """Remember when the fleet changes next by itself."""
    environment = sim.environment
    environment.fleet_due_at_ps = NEVER_PS
    for r in range(sim.deployment.num_replicas):
        environment.fleet_due_at_ps = min(environment.fleet_due_at_ps, sim.replicas[r].life.due_at_ps)
    if environment.next_change < environment.num_changes:
        at = sim.capacity[environment.next_change].at_ps
        environment.fleet_due_at_ps = min(environment.fleet_due_at_ps, at)


@rare_kernel
def change_fleet(sim, at_ps):
    """The first change due at this time: replicas by index, then capacity."""
    for r in range(sim.deployment.num_replicas):
        if sim.replicas[r].life.due_at_ps == at_ps:
            end_phase(sim, r, at_ps)
            find_next_change(sim)
            return
    change = sim.capacity[sim.environment.next_change]
    sim.environment.next_change += 1
    set_capacity(sim, sim.pools[change.pool], change.replicas, at_ps)
    find_next_change(sim)


@rare_kernel
def end_phase(sim, r, at_ps):
    """Booting, waking or draining of replica r is over."""
    replica = sim.replicas[r]
    life = replica.life
    if life.state == DRAINING:
        leave(sim, r, OFF, at_ps)
    elif life.fails:
        sim.pools[life.pool].failed += 1
        leave(sim, r, OFF, at_ps)
    elif life.is_to_sleep:
        leave(sim, r, ASLEEP, at_ps)
    else:
        become(sim, r, UP, at_ps, NEVER_PS)
        replica.tier = sim.environment.quantization_tier
        replica.free_at_ps = replica.available_at_ps = at_ps
        replica.pool_is_stale = 1


@rare_kernel
def set_capacity(sim, pool, capacity, at_ps):
    """The pool may have so many replicas; those beyond it go, the serving ones after a notice."""
    pool.capacity = capacity
    staying = 0
    for r in range(pool.first, pool.stop):
        staying += sim.replicas[r].life.state != OFF and not sim.replicas[r].life.is_noticed
    while staying > capacity:
        staying -= 1
        idle = last_in(sim, pool, ASLEEP)
        if idle < 0:
            idle = last_in(sim, pool, BOOTING)
        if idle < 0:
            idle = last_in(sim, pool, WAKING)
        if idle >= 0:
            leave(sim, idle, OFF, at_ps)
            continue
        serving = last_in(sim, pool, DRAINING)
        if serving < 0:
            serving = last_in(sim, pool, UP)
        pool.taken += 1
        sim.replicas[serving].life.is_noticed = 1
        drain(sim, serving, at_ps, pool.notice_ps)


@rare_kernel
def settle_fleet(sim, at_ps):
    """The end of a window: drained replicas leave, and everything is billed."""
    for r in range(sim.deployment.num_replicas):
        replica = sim.replicas[r]
        life = replica.life
        if life.state == DRAINING and replica.num_running + replica.num_waiting == 0 and replica.end_at_ps < 0:
            pool = sim.pools[life.pool]
            empty_at = min(max(life.drained_from_ps, replica.free_at_ps), at_ps)
            sleeps = count_resting(sim, pool) < pool.asleep_order and not life.is_noticed
            leave(sim, r, ASLEEP if sleeps else OFF, empty_at)
    for r in range(sim.deployment.num_replicas):
        bill(sim, r, at_ps)
    find_next_change(sim)
