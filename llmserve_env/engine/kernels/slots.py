"""Slots of the running batch: putting tokens into an iteration, taking a request out, preempting, giving up."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.decision_log import log_preemption
from llmserve_env.engine.kernels.gaps import close_gap
from llmserve_env.engine.kernels.kv_pool import free_blocks, key_full_blocks, request_in, track
from llmserve_env.engine.kernels.queues import dequeue, enqueue
from llmserve_env.engine.kernels.recording import count_wait, judge
from llmserve_env.engine.layout import ABANDONED, NO_OUTPUT
from llmserve_env.units import NEVER_PS, PPM


@kernel
def place(sim, r, iteration, i, n):
    """Put n tokens of slot i into an iteration, and note its drafts.

    Blocks that these tokens fill can be found from here on, even by requests admitted in the same iteration.
    """
    batch = sim.replicas[r].batch
    if sim.deployment.prefix_caching:
        key_full_blocks(sim, r, i, min(batch.computed[i] + n, np.int64(batch.known[i])))
    drafts = batch.computed[i] + n - batch.known[i] - batch.in_flight[i]
    iteration.tokens[i] = n
    iteration.drafts[i] = drafts if drafts >= 0 else NO_OUTPUT


@kernel
def remove_unscheduled_slot(sim, r, slot):
    """Close the gap of a leaving request; the others keep their order. No iteration may hold tokens of any slot."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    last = replica.num_running - 1
    close_gap(batch.request, slot, last)
    close_gap(batch.known, slot, last)
    close_gap(batch.computed, slot, last)
    close_gap(batch.target, slot, last)
    close_gap(batch.last, slot, last)
    close_gap(batch.held_blocks, slot, last)
    if sim.deployment.prefix_caching:
        close_gap(batch.keyed_blocks, slot, last)
        close_gap(batch.shared_blocks, slot, last)
        freed = batch.table_row[slot]
        close_gap(batch.table_row, slot, last)
        batch.table_row[last] = freed
    replica.num_running = last


@kernel
def remove_slot(sim, r, slot):
    """Close the gap of a leaving request, in the iterations too."""
    batch, last = sim.replicas[r].batch, sim.replicas[r].num_running - 1
    close_gap(batch.executing.tokens, slot, last)
    close_gap(batch.executing.drafts, slot, last)
    if sim.deployment.async_scheduling:
        close_gap(batch.queued.tokens, slot, last)
        close_gap(batch.queued.drafts, slot, last)
        close_gap(batch.in_flight, slot, last)
    remove_unscheduled_slot(sim, r, slot)


@rare_kernel
def drop_slot(sim, r, slot, at_ps):
    """Take a running request off the replica: its KV is gone, its emitted tokens are kept. Returns the request."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    q = request_in(batch, slot)
    progress = sim.progress[q]
    progress.emitted = batch.known[slot] - sim.requests[q].prompt_tokens
    if progress.is_stalled:
        progress.is_stalled = 0
        replica.num_stalled -= 1
    if progress.emitted > 0 and progress.last_token_at_ps < 0:
        progress.last_token_at_ps = at_ps
    if batch.computed[slot] < batch.target[slot]:
        replica.num_prefilling -= 1
    free_blocks(sim, r, slot)
    remove_slot(sim, r, slot)
    return q


@rare_kernel
def preempt(sim, r, slot, at_ps):
    """Send a running request back to this replica's queue."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    executing = batch.executing
    is_plain = slot < replica.num_plain
    is_emitting = executing.tokens[slot] > 0 and executing.drafts[slot] != NO_OUTPUT
    if batch.in_flight[slot] > 0 and (is_plain or is_emitting):
        batch.stale[replica.num_stale] = batch.request[slot]
        replica.num_stale += 1
        sim.progress[batch.request[slot]].stale_items = 1 if is_plain else 1 + executing.drafts[slot]
    replica.num_plain -= is_plain
    if sim.deployment.prefix_caching:
        track(sim, r, slot)
    q = drop_slot(sim, r, slot, at_ps)
    sim.progress[q].preemptions += 1
    sim.window.preemptions += 1
    if sim.log.size > 0:
        log_preemption(sim, r, at_ps, q)
    enqueue(sim, r, q, at_ps)


@rare_kernel
def victim_slot(sim, r):
    """The slot to preempt: the last admitted, or under priority routing the least urgent and then the latest."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    victim = replica.num_running - 1
    if not sim.environment.priority_routing:
        return victim
    for i in range(replica.num_running):
        a, b = batch.request[i], batch.request[victim]
        request, worst = sim.requests[a], sim.requests[b]
        if request.priority != worst.priority:
            is_worse = request.priority > worst.priority
        elif request.arrival_at_ps != worst.arrival_at_ps:
            is_worse = request.arrival_at_ps > worst.arrival_at_ps
        else:
            is_worse = a > b
        if is_worse:
            victim = i
    return victim


@rare_kernel
def abandon(sim, q):
    """Record that the client of request q has left without a first token."""
    request, progress = sim.requests[q], sim.progress[q]
    progress.status = ABANDONED
    progress.finished_at_ps = request.deadline_at_ps
    sim.window.abandoned += 1
    count_wait(sim, request.deadline_at_ps, request.deadline_at_ps - request.arrival_at_ps)
    judge(sim, q, False, PPM)


@rare_kernel
def abandon_expired(sim, r, at_ps):
    """Drop every request here whose client stopped waiting for its first token by `at_ps`."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    earliest = NEVER_PS
    i = 0
    while i < replica.num_running:
        q = request_in(batch, i)
        # Decoding requests already have their first token, so one check of the batch replaces a check of each request.
        is_decoding = batch.computed[i] >= batch.target[i] or batch.in_flight[i] > 0
        if is_decoding or sim.progress[q].first_token_at_ps >= 0:
            i += 1
        elif sim.requests[q].deadline_at_ps <= at_ps:
            drop_slot(sim, r, i, at_ps)
            abandon(sim, q)
        else:
            earliest = min(earliest, sim.requests[q].deadline_at_ps)
            i += 1
    for k in range(sim.deployment.num_classes):
        q = replica.head[k]
        while q >= 0:
            following = np.int64(sim.progress[q].next)
            deadline = sim.requests[q].deadline_at_ps
            if sim.progress[q].first_token_at_ps < 0 and not sim.progress[q].stale_items:
                if deadline <= at_ps:
                    dequeue(sim, r, q)
                    abandon(sim, q)
                else:
                    earliest = min(earliest, deadline)
            q = following
    replica.next_deadline_at_ps = earliest
