"""The global loop of a window: events in time order, replicas advanced to each of them."""

from __future__ import annotations

from llmserve_env.engine.fleet import OFF
from llmserve_env.engine.kernels.compilation import entry_point, kernel, rare_kernel
from llmserve_env.engine.kernels.fleet import change_fleet, obey_orders, settle_fleet
from llmserve_env.engine.kernels.reconfigure import apply_knobs, finish_reload, forget_reload, open_split
from llmserve_env.engine.kernels.replica import advance_replica
from llmserve_env.engine.kernels.routing import arrive, hand_over, route
from llmserve_env.engine.kernels.view import Sim
from llmserve_env.engine.kernels.window import close_window, open_bill, open_window
from llmserve_env.engine.layout import SPLIT_STARTING, SPLIT_UP
from llmserve_env.units import NEVER_PS

NONE, READY, RELOADED, FLEET, HANDOFF, ARRIVAL = range(6)


@kernel
def next_event(sim):
    """(time, kind) of the next event; at equal times the lower kind comes first."""
    environment = sim.environment
    at, kind = NEVER_PS, NONE
    if environment.split == SPLIT_STARTING:
        at, kind = environment.split_ready_at_ps, READY
    if environment.reloading >= 0 and sim.replicas[environment.reloading].available_at_ps < at:
        at, kind = sim.replicas[environment.reloading].available_at_ps, RELOADED
    if environment.fleet_due_at_ps < at:
        at, kind = environment.fleet_due_at_ps, FLEET
    if environment.handoff_head >= 0 and sim.progress[environment.handoff_head].handoff_at_ps < at:
        at, kind = sim.progress[environment.handoff_head].handoff_at_ps, HANDOFF
    if environment.next_arrival < environment.num_requests:
        arrives_at = sim.requests[environment.next_arrival].arrival_at_ps + sim.deployment.front_end_ps
        if arrives_at < at:
            at, kind = arrives_at, ARRIVAL
    return at, kind


@rare_kernel
def wake_all(sim):
    """Mark every replica as due, because what it does next may have changed.

    Replicas beyond the last one that is not OFF are skipped until the fleet changes again.
    """
    environment = sim.environment
    environment.num_active = sim.replicas.shape[0]
    for r in range(sim.replicas.shape[0]):
        sim.replicas[r].due_at_ps = 0
    while (
        sim.deployment.num_pools > 0
        and environment.num_active > 0
        and sim.replicas[environment.num_active - 1].life.state == OFF
    ):
        environment.num_active -= 1


@entry_point
def advance(tables, state, knobs, until_ps):  # noqa: C901
    """Serve one window of every environment: apply knobs, serve until `until_ps`, close the books; returns faults.

    `advance_replica` is called in one place only, because it is inlined with everything it calls.
    """
    num_faults = 0
    for e in range(state.environment.shape[0]):
        sim = Sim(
            tables.deployment[0],
            state.environment[e],
            state.window[e],
            state.replicas[e],
            state.requests[e],
            state.progress[e],
            state.entries[e],
            state.buckets[e],
            state.block_table[e],
            state.pools[e],
            state.launch_delays[e],
            state.capacity[e],
            state.log,
            tables.recorded,
        )
        environment, until = sim.environment, until_ps[e]
        open_window(sim)
        open_bill(sim)
        wake_all(sim)
        apply_knobs(sim, knobs[e])
        if sim.deployment.num_pools > 0:
            obey_orders(sim, environment.now_ps)
            forget_reload(sim, environment.now_ps)
            wake_all(sim)
        behind = -1
        while not environment.fault:
            first, stop = (0, environment.num_active) if behind < 0 else (behind, behind + 1)
            # Prefill replicas go first: they may hand requests over before the next event.
            # Base replicas then wait for the next event that concerns them.
            is_split = 1 if environment.split == SPLIT_UP or sim.deployment.has_prefill_pool else 0
            for is_prefill in range(is_split, -1, -1):
                at, kind = next_event(sim)
                # A router only reads which replicas serve and how many requests they have.
                may_rest = behind < 0 and at < until and kind >= HANDOFF
                if is_prefill or environment.split != SPLIT_UP or kind != ARRIVAL or at >= until:
                    stop_at = min(at, until)
                    for r in range(first, stop):
                        replica = sim.replicas[r]
                        is_due = replica.due_at_ps <= stop_at or (replica.is_resting and not may_rest)
                        if is_due and (not is_split or replica.is_prefill == is_prefill):
                            advance_replica(sim, r, stop_at, may_rest)
            if at >= until:
                break
            if kind >= HANDOFF:
                q = environment.next_arrival if kind == ARRIVAL else environment.handoff_head
                r = behind
                if behind < 0:
                    r = route(sim, q, at, -1)
                    if r >= 0 and sim.replicas[r].is_resting:
                        # The replica catches up first, which does not change where the request goes.
                        behind = r
                        continue
                behind = -1
                if kind == ARRIVAL:
                    arrive(sim, q, r, at)
                    environment.next_arrival += 1
                else:
                    hand_over(sim, q, r, at)
                continue
            if kind == RELOADED:
                finish_reload(sim, at)
            elif kind == FLEET:
                change_fleet(sim, at)
                forget_reload(sim, at)
            else:
                open_split(sim, at)
            wake_all(sim)
        environment.now_ps = until
        if sim.deployment.num_pools > 0:
            settle_fleet(sim, until)
        close_window(sim)
        num_faults += environment.fault
    return num_faults
