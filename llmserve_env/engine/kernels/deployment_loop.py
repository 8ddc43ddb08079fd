"""The global loop of a window: events in time order, replicas advanced to each of them."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import entry_point, kernel

from llmserve_env.engine.kernels.borrow import borrow
from llmserve_env.engine.kernels.reconfigure import apply_knobs, finish_reload, open_split
from llmserve_env.engine.kernels.replica import advance_replica
from llmserve_env.engine.kernels.routing import arrive, hand_over
from llmserve_env.engine.kernels.view import Sim
from llmserve_env.engine.kernels.window import close_window, open_window
from llmserve_env.engine.state import SPLIT_STARTING, SPLIT_UP
from llmserve_env.units import NEVER_PS

NONE, READY, RELOADED, HANDOFF, ARRIVAL = range(5)


@kernel
def next_event(sim):  # type: ignore[no-untyped-def]
    """(time, kind) of the next event; at equal times the lower kind comes first."""
    environment = sim.environment
    at, kind = NEVER_PS, NONE
    if environment.split == SPLIT_STARTING:
        at, kind = environment.split_ready_at_ps, READY
    if environment.reloading >= 0 and sim.replicas[environment.reloading].available_at_ps < at:
        at, kind = sim.replicas[environment.reloading].available_at_ps, RELOADED
    if environment.handoff_head >= 0 and sim.progress[environment.handoff_head].handoff_at_ps < at:
        at, kind = sim.progress[environment.handoff_head].handoff_at_ps, HANDOFF
    if environment.next_arrival < environment.num_requests and sim.requests[environment.next_arrival].arrival_at_ps < at:
        at, kind = sim.requests[environment.next_arrival].arrival_at_ps, ARRIVAL
    return at, kind


@kernel
def advance_replicas(sim, first, stop, until_ps):  # type: ignore[no-untyped-def]
    """Bring replicas [first, stop) to `until_ps`."""
    for r in range(first, stop):
        advance_replica(sim, r, until_ps)


@kernel
def advance_environment(sim, knobs, until_ps):  # type: ignore[no-untyped-def]
    """One window: apply the knobs, serve until `until_ps`, close the books."""
    environment = sim.environment
    num_base, num_all = sim.deployment.num_replicas, sim.replicas.shape[0]
    open_window(sim)
    apply_knobs(sim, knobs)
    while True:
        at, kind = next_event(sim)
        at_or_end = min(at, until_ps)
        if environment.split == SPLIT_UP:
            # Prefill replicas go first: they may hand requests over before this event.
            advance_replicas(sim, num_base, num_all, at_or_end)
            at, kind = next_event(sim)
            at_or_end = min(at, until_ps)
        if kind != ARRIVAL or environment.split != SPLIT_UP or at >= until_ps:
            advance_replicas(sim, 0, num_base, at_or_end)
        if at >= until_ps or environment.fault:
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
    environment.now_ps = until_ps
    close_window(sim)


@entry_point
def advance(tables, state, knobs, until_ps):  # type: ignore[no-untyped-def]
    """Advance every environment of `state` by one window."""
    for e in range(state.environment.shape[0]):
        sim = Sim(
            borrow(tables.deployment)[0],
            borrow(state.environment)[e],
            borrow(state.window)[e],
            borrow(state.replicas)[e],
            borrow(state.requests)[e],
            borrow(state.progress)[e],
            borrow(tables.gemm),
            borrow(tables.curves),
            borrow(state.cache)[e],
            borrow(state.block_table)[e],
            borrow(state.log),
            borrow(tables.recorded),
        )
        advance_environment(sim, borrow(knobs)[e], until_ps[e])
