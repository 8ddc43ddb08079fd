"""Where a request goes: least-loaded over the replicas that may take it, and what happens when one leaves."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.prefix_cache import forget_all
from llmserve_env.engine.kernels.queues import dequeue, enqueue, is_before, queue_head
from llmserve_env.engine.kernels.recording import count_arrival, reject
from llmserve_env.engine.kernels.restart import lose_iterations
from llmserve_env.engine.kernels.slots import drop_slot


@kernel
def least_loaded(sim, is_prefill, at_ps, excluded):
    """The in-service replica of this role with the fewest requests, available ones first; -1 if there is none."""
    best, best_load, best_is_up = -1, 0, False
    for r in range(sim.environment.num_active):
        replica = sim.replicas[r]
        if r == excluded or not replica.in_service or replica.is_prefill != is_prefill:
            continue
        load = replica.num_running + replica.num_waiting
        is_up = replica.available_at_ps <= at_ps
        if best < 0 or (is_up and not best_is_up) or (is_up == best_is_up and load < best_load):
            best, best_load, best_is_up = r, load, is_up
    return best


@rare_kernel
def has_prefill_replica(sim):
    """Whether a prefill replica is in service."""
    found = 0
    for r in range(sim.environment.num_active):
        found += sim.replicas[r].is_prefill and sim.replicas[r].in_service
    return found > 0


@rare_kernel
def home_of(sim, q, best, is_prefill, at_ps, excluded):
    """The home replica of request q's session, if it may take the request; otherwise `best`."""
    root = sim.requests[q].session_root
    home = np.int64(sim.progress[root].home) if root >= 0 else -1
    if home < 0 or home == excluded:
        return best
    near, far = sim.replicas[home], sim.replicas[best]
    if not near.in_service or near.is_prefill != is_prefill or near.available_at_ps > at_ps:
        return best
    more = near.num_running + near.num_waiting - far.num_running - far.num_waiting
    return home if more <= sim.deployment.affinity_slack else best


@kernel
def route(sim, q, at_ps, excluded):
    """The replica for request q; `excluded` only when no other can take it; -1 if none is in service."""
    may_split = sim.deployment.num_prefill_replicas > 0 or sim.deployment.has_prefill_pool
    is_prefill = 1 if may_split and sim.progress[q].is_fresh and has_prefill_replica(sim) else 0
    r = least_loaded(sim, is_prefill, at_ps, excluded)
    if (
        r < 0
        and excluded >= 0
        and sim.replicas[excluded].in_service
        and sim.replicas[excluded].is_prefill == is_prefill
    ):
        return excluded
    if r >= 0 and sim.deployment.affinity_slack >= 0:
        return home_of(sim, q, r, is_prefill, at_ps, excluded)
    return r


@kernel
def set_home(sim, r, q):
    """Make replica r the home of request q's session."""
    root = sim.requests[q].session_root
    if root >= 0:
        sim.progress[root].home = r


@kernel
def send(sim, r, q, at_ps):
    """Queue request q at replica r, which becomes its session's home; without a replica it is rejected."""
    if r < 0:
        reject(sim, q, at_ps)
        return
    enqueue(sim, r, q, at_ps)
    set_home(sim, r, q)


@kernel
def arrive(sim, q, r, at_ps):
    """Queue request q, which a client sends, at replica r, or reject it if its class's waiting room is full."""
    k = sim.requests[q].priority
    count_arrival(sim, q)
    if r >= 0 and sim.replicas[r].fresh_waiting[k] >= sim.deployment.waiting_room[k]:
        reject(sim, q, at_ps)
    else:
        send(sim, r, q, at_ps)


@rare_kernel
def evacuate(sim, r, at_ps):
    """Drop the iteration and the KV of replica r, and route its requests again, running ones first."""
    replica = sim.replicas[r]
    lose_iterations(sim, r, at_ps)
    while replica.num_running > 0:
        q = drop_slot(sim, r, 0, at_ps)
        sim.progress[q].preemptions += 1
        sim.window.preemptions += 1
        send(sim, route(sim, q, at_ps, r), q, at_ps)
    if sim.deployment.prefix_caching:
        forget_all(sim, r)
    move_waiting(sim, r, at_ps, False, True)


@rare_kernel
def move_waiting(sim, r, at_ps, only_fresh, is_evacuated):
    """Route replica r's waiting requests again, in (arrival, id) order.

    Those that no replica can take stay here, or are refused if this one is evacuated.
    """
    pending = sim.replicas[r].num_waiting
    q = queue_head(sim, r, False)
    for _ in range(pending):
        following = next_waiting(sim, r, q)
        if sim.progress[q].is_fresh or not only_fresh:
            target = route(sim, q, at_ps, r)
            if target == r:
                set_home(sim, r, q)
            elif target >= 0 or is_evacuated:
                dequeue(sim, r, q)
                send(sim, target, q, at_ps)
        q = following


@rare_kernel
def next_waiting(sim, r, q):
    """The waiting request that follows q in (arrival, id) order, or -1."""
    best = -1
    for k in range(sim.deployment.num_classes):
        c = sim.replicas[r].head[k]
        while c >= 0 and not is_before(sim, q, c):
            c = np.int64(sim.progress[c].next)
        if c >= 0 and (best < 0 or is_before(sim, c, best)):
            best = c
    return best


@rare_kernel
def hand_over(sim, q, r, at_ps):
    """Queue request q at replica r, where its KV has arrived."""
    sim.environment.handoff_head = sim.progress[q].next
    sim.progress[q].handoff_at_ps = -1
    send(sim, r, q, at_ps)
