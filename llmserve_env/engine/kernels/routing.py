"""Where a request goes: least-loaded over the replicas that may take it, and what happens when one leaves."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.prefix_cache import forget_all
from llmserve_env.engine.kernels.queues import dequeue, enqueue, is_before, queue_head
from llmserve_env.engine.kernels.recording import count_arrival, reject
from llmserve_env.engine.kernels.restart import lose_iterations
from llmserve_env.engine.kernels.slots import drop_slot
from llmserve_env.engine.layout import SPLIT_UP


@kernel
def least_loaded(sim, first, stop, at_ps, excluded):
    """The in-service replica in [first, stop) with the fewest requests, available ones first; -1 if there is none."""
    best, best_load, best_is_up = -1, 0, False
    for r in range(first, stop):
        replica = sim.replicas[r]
        if r == excluded or not replica.in_service:
            continue
        load = replica.num_running + replica.num_waiting
        is_up = replica.available_at_ps <= at_ps
        if best < 0 or (is_up and not best_is_up) or (is_up == best_is_up and load < best_load):
            best, best_load, best_is_up = r, load, is_up
    return best


@kernel
def route(sim, q, at_ps, excluded):
    """The replica for request q; `excluded` only when no other can take it."""
    deployment = sim.deployment
    first, stop = 0, deployment.num_replicas
    if sim.progress[q].is_fresh and sim.environment.split == SPLIT_UP:
        first, stop = deployment.num_replicas, deployment.num_replicas + deployment.num_prefill_replicas
    r = least_loaded(sim, first, stop, at_ps, excluded)
    return r if r >= 0 else excluded


@kernel
def arrive(sim, q):
    """A client sends request q: it waits at a replica, or its class's waiting room there is full."""
    at, k = sim.requests[q].arrival_at_ps + sim.deployment.front_end_ps, sim.requests[q].priority
    count_arrival(sim, q)
    r = route(sim, q, at, -1)
    if sim.replicas[r].fresh_waiting[k] >= sim.deployment.waiting_room[k]:
        reject(sim, q, at)
    else:
        enqueue(sim, r, q, at)


@rare_kernel
def evacuate(sim, r, at_ps):
    """Replica r loses its iteration and its KV; its requests are routed again, running ones first."""
    replica = sim.replicas[r]
    lose_iterations(sim, r, at_ps)
    while replica.num_running > 0:
        q = drop_slot(sim, r, 0, at_ps)
        sim.progress[q].preemptions += 1
        sim.window.preemptions += 1
        enqueue(sim, route(sim, q, at_ps, r), q, at_ps)
    if sim.deployment.prefix_caching:
        forget_all(sim, r)
    move_waiting(sim, r, at_ps, False)


@rare_kernel
def move_waiting(sim, r, at_ps, only_fresh):
    """Route replica r's waiting requests again, in (arrival, id) order."""
    pending = sim.replicas[r].num_waiting
    q = queue_head(sim, r, False)
    for _ in range(pending):
        following = next_waiting(sim, r, q)
        if sim.progress[q].is_fresh or not only_fresh:
            target = route(sim, q, at_ps, r)
            if target != r:
                dequeue(sim, r, q)
                enqueue(sim, target, q, at_ps)
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
def hand_over(sim, q):
    """The KV of request q has arrived: it waits at a base replica."""
    at = sim.progress[q].handoff_at_ps
    sim.environment.handoff_head = sim.progress[q].next
    sim.progress[q].handoff_at_ps = -1
    enqueue(sim, least_loaded(sim, 0, sim.deployment.num_replicas, at, -1), q, at)
