"""Waiting requests of a replica: one list per class, always in (arrival, id) order, linked through `progress`.

First-come-first-served takes the earliest head, priority routing the most urgent class's head, so switching
between them moves nothing. For plain FCFS this equals vLLM's deque with push-front on preemption.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.layout import TRANSFERRING, WAITING


@kernel
def is_before(sim, a, b):
    """Whether request a comes before b."""
    at_a, at_b = sim.requests[a].arrival_at_ps, sim.requests[b].arrival_at_ps
    return at_a < at_b or (at_a == at_b and a < b)


@kernel
def enqueue(sim, r, q, t):
    """Make request q wait at replica r from time t on."""
    replica = sim.replicas[r]
    progress = sim.progress
    head, tail = replica.head, replica.tail
    k = sim.requests[q].priority
    if tail[k] < 0 or is_before(sim, tail[k], q):
        after = tail[k]
    elif is_before(sim, q, head[k]):
        after = -1
    else:
        after = head[k]
        while progress[after].next >= 0 and is_before(sim, np.int64(progress[after].next), q):
            after = np.int64(progress[after].next)
    before = head[k] if after < 0 else progress[after].next
    progress[q].previous = after
    progress[q].next = before
    if after < 0:
        head[k] = q
    else:
        progress[after].next = q
    if before < 0:
        tail[k] = q
    else:
        progress[before].previous = q
    progress[q].status = WAITING
    replica.num_waiting += 1
    if progress[q].is_fresh:
        replica.fresh_waiting[k] += 1
    if progress[q].first_token_at_ps < 0 and sim.requests[q].deadline_at_ps < replica.next_deadline_at_ps:
        replica.next_deadline_at_ps = sim.requests[q].deadline_at_ps
    if replica.end_at_ps < 0:
        replica.free_at_ps = max(replica.free_at_ps, t)
        replica.due_at_ps = replica.free_at_ps + 1


@kernel
def dequeue(sim, r, q):
    """Take request q out of replica r's queue."""
    replica = sim.replicas[r]
    progress = sim.progress
    k = sim.requests[q].priority
    before, after = progress[q].previous, progress[q].next
    if before < 0:
        replica.head[k] = after
    else:
        progress[before].next = after
    if after < 0:
        replica.tail[k] = before
    else:
        progress[after].previous = before
    replica.num_waiting -= 1
    if progress[q].is_fresh:
        replica.fresh_waiting[k] -= 1


@kernel
def queue_head(sim, r, by_priority):
    """The request to admit next, or -1."""
    head = sim.replicas[r].head
    best = -1
    for k in range(sim.deployment.num_classes):
        q = head[k]
        if q >= 0 and (best < 0 or is_before(sim, q, best)):
            best = q
            if by_priority:
                return best
    return best


@rare_kernel
def insert_handoff(sim, q, at):
    """Put request q in transfer until `at`; the list is ordered by (time, id)."""
    progress = sim.progress
    progress[q].status = TRANSFERRING
    progress[q].handoff_at_ps = at
    before, following = -1, sim.environment.handoff_head
    while following >= 0 and (
        progress[following].handoff_at_ps < at or (progress[following].handoff_at_ps == at and following < q)
    ):
        before = following
        following = progress[following].next
    progress[q].next = following
    if before < 0:
        sim.environment.handoff_head = q
    else:
        progress[before].next = q
