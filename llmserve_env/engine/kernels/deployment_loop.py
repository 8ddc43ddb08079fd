"""The global loop of a window: events in time order, replicas advanced to each of them."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import entry_point, kernel
from llmserve_env.engine.kernels.reconfigure import apply_knobs, finish_reload, open_split
from llmserve_env.engine.kernels.replica import advance_replica
from llmserve_env.engine.kernels.routing import arrive, hand_over
from llmserve_env.engine.kernels.view import Sim
from llmserve_env.engine.kernels.window import close_window, open_window
from llmserve_env.engine.layout import SPLIT_STARTING, SPLIT_UP
from llmserve_env.units import NEVER_PS

NONE, READY, RELOADED, HANDOFF, ARRIVAL = range(5)


@kernel
def next_event(sim):
    """(time, kind) of the next event; at equal times the lower kind comes first."""
    environment = sim.environment
    at, kind = NEVER_PS, NONE
    if environment.split == SPLIT_STARTING:
        at, kind = environment.split_ready_at_ps, READY
    if environment.reloading >= 0 and sim.replicas[environment.reloading].available_at_ps < at:
        at, kind = sim.replicas[environment.reloading].available_at_ps, RELOADED
    if environment.handoff_head >= 0 and sim.progress[environment.handoff_head].handoff_at_ps < at:
        at, kind = sim.progress[environment.handoff_head].handoff_at_ps, HANDOFF
    if environment.next_arrival < environment.num_requests:
        arrives_at = sim.requests[environment.next_arrival].arrival_at_ps + sim.deployment.front_end_ps
        if arrives_at < at:
            at, kind = arrives_at, ARRIVAL
    return at, kind


@kernel
def is_settled(sim, r, until_ps):
    """Whether nothing can happen at replica r by `until_ps`."""
    replica = sim.replicas[r]
    if replica.end_at_ps < 0:
        return replica.num_running + replica.num_waiting == 0
    may_schedule = replica.may_queue and replica.queued_end_at_ps < 0 and replica.free_at_ps < until_ps
    return replica.done_at_ps > until_ps and not (sim.deployment.async_scheduling and may_schedule)


@entry_point
def advance(tables, state, knobs, until_ps):  # noqa: C901
    """One window of every environment: apply its knobs, serve until its `until_ps`, close the books; returns faults.

    `advance_replica` is called in one place only, because it is inlined with everything it calls.
    """
    num_base, num_all = tables.deployment[0].num_replicas, state.replicas.shape[1]
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
            state.log,
            tables.recorded,
        )
        environment, until = sim.environment, until_ps[e]
        open_window(sim)
        apply_knobs(sim, knobs[e])
        while not environment.fault:
            # Prefill replicas go first: they may hand requests over before the next event.
            # Base replicas then wait for the next event that concerns them.
            is_split = 1 if environment.split == SPLIT_UP else 0
            for prefill_first in range(is_split, -1, -1):
                at, kind = next_event(sim)
                if prefill_first or not is_split or kind != ARRIVAL or at >= until:
                    first = num_base if prefill_first else 0
                    stop = num_base if is_split and not prefill_first else num_all
                    for r in range(first, stop):
                        if not is_settled(sim, r, min(at, until)):
                            advance_replica(sim, r, min(at, until))
            if at >= until:
                break
            if kind == ARRIVAL:
                arrive(sim, environment.next_arrival)
                environment.next_arrival += 1
            elif kind == HANDOFF:
                hand_over(sim, environment.handoff_head)
            elif kind == RELOADED:
                finish_reload(sim, at)
            else:
                open_split(sim, at)
        environment.now_ps = until
        close_window(sim)
        num_faults += environment.fault
    return num_faults
