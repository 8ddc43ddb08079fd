"""Columns of the running batch: taking one out, preempting one, choosing a victim, giving up on the impatient."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.gaps import close_gap
from llmserve_env.engine.kernels.kv_pool import free_blocks
from llmserve_env.engine.kernels.queues import dequeue, enqueue
from llmserve_env.engine.kernels.recording import PPM, count_wait, judge, log_event
from llmserve_env.engine.layout import (
    ABANDONED,
    COMPUTED,
    DRAFTS,
    IN_FLIGHT,
    KNOWN,
    LOG_PREEMPT,
    REQUEST,
    SCHEDULED,
    STALE,
    TABLE,
    TARGET,
)
from llmserve_env.units import NEVER_PS


@kernel
def remove_slot(sim, r, slot, num_rows):
    """Close the gap of a leaving request; order stays the order of admission."""
    replica, running = sim.replicas[r], sim.replicas[r].running
    last = replica.num_running - 1
    for row in range(num_rows):
        close_gap(running[row], slot, last)
    if sim.deployment.prefix_caching:
        freed = running[TABLE, slot]
        close_gap(running[TABLE], slot, last)
        running[TABLE, last] = freed
    replica.num_running = last


@rare_kernel
def drop_slot(sim, r, slot, at_ps, num_rows):
    """Take a running request off the replica: its KV is gone, its emitted tokens are kept."""
    replica, running = sim.replicas[r], sim.replicas[r].running
    q = running[REQUEST, slot]
    progress = sim.progress[q]
    progress.emitted = running[KNOWN, slot] - sim.requests[q].prompt_tokens
    if progress.is_stalled:
        progress.is_stalled = 0
        replica.num_stalled -= 1
    if progress.emitted > 0 and progress.last_token_at_ps < 0:
        progress.last_token_at_ps = at_ps
    if running[COMPUTED, slot] < running[TARGET, slot]:
        replica.num_prefilling -= 1
    free_blocks(sim, r, slot)
    remove_slot(sim, r, slot, num_rows)
    return q


@rare_kernel
def preempt(sim, r, slot, at_ps, num_rows):
    """Send a running request back to this replica's queue."""
    replica, running = sim.replicas[r], sim.replicas[r].running
    if running[IN_FLIGHT, slot] > 0 and running[SCHEDULED, slot] > 0 and running[DRAFTS, slot] >= 0:
        running[STALE, replica.num_stale] = running[REQUEST, slot]
        replica.num_stale += 1
        sim.progress[running[REQUEST, slot]].stale_items = 1 + running[DRAFTS, slot]
    q = drop_slot(sim, r, slot, at_ps, num_rows)
    sim.progress[q].preemptions += 1
    sim.window.preemptions += 1
    log_event(sim, LOG_PREEMPT, r, q, at_ps, 0, 0, 0, 0)
    enqueue(sim, r, q, at_ps)


@rare_kernel
def victim_slot(sim, r):
    """Who is preempted: the last admitted, or under priority routing the least urgent and then latest."""
    replica, running = sim.replicas[r], sim.replicas[r].running
    victim = replica.num_running - 1
    if not sim.environment.priority_routing:
        return victim
    for i in range(replica.num_running):
        a, b = running[REQUEST, i], running[REQUEST, victim]
        request, worst = sim.requests[a], sim.requests[b]
        if request.priority != worst.priority:
            worse = request.priority > worst.priority
        elif request.arrival_at_ps != worst.arrival_at_ps:
            worse = request.arrival_at_ps > worst.arrival_at_ps
        else:
            worse = a > b
        if worse:
            victim = i
    return victim


@rare_kernel
def abandon(sim, q):
    """The client has gone without a first token."""
    request, progress = sim.requests[q], sim.progress[q]
    progress.status = ABANDONED
    progress.finished_at_ps = request.deadline_at_ps
    sim.window.abandoned += 1
    count_wait(sim, request.deadline_at_ps, request.deadline_at_ps - request.arrival_at_ps)
    judge(sim, q, False, PPM)


@rare_kernel
def abandon_expired(sim, r, at_ps, num_rows):
    """Drop every request here whose client stopped waiting for its first token by `at_ps`."""
    replica, running = sim.replicas[r], sim.replicas[r].running
    earliest = NEVER_PS
    i = 0
    while i < replica.num_running:
        q = running[REQUEST, i]
        # Who decodes has a first token; asking the batch first spares a look at every request of it.
        is_decoding = running[COMPUTED, i] >= running[TARGET, i] or running[IN_FLIGHT, i] > 0
        if is_decoding or sim.progress[q].first_token_at_ps >= 0:
            i += 1
        elif sim.requests[q].deadline_at_ps <= at_ps:
            drop_slot(sim, r, i, at_ps, num_rows)
            abandon(sim, q)
        else:
            earliest = min(earliest, sim.requests[q].deadline_at_ps)
            i += 1
    for k in range(sim.deployment.num_classes):
        q = replica.head[k]
        while q >= 0:
            following = sim.progress[q].next
            deadline = sim.requests[q].deadline_at_ps
            if sim.progress[q].first_token_at_ps < 0 and not sim.progress[q].stale_items:
                if deadline <= at_ps:
                    dequeue(sim, r, q)
                    abandon(sim, q)
                else:
                    earliest = min(earliest, deadline)
            q = following
    replica.next_deadline_at_ps = earliest
