"""Forming one iteration, by vLLM V1's rules: running requests first, then admissions, within one token budget.

There is no decode phase and no prefill phase: a request's computed tokens catch up with its known ones.
`docs/engine.md` numbers the steps; `admission.py` has step 3, `launch.py` steps 4 and 5.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.admission import admit
from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.kv_pool import (
    blocks_for,
    grow,
    key_decoded,
    lookahead_tokens,
    set_pool_size,
    use_blocks,
)
from llmserve_env.engine.kernels.lanes import ZERO, whole_vectors
from llmserve_env.engine.kernels.launch import launch
from llmserve_env.engine.kernels.prefix_cache import resize_cache
from llmserve_env.engine.kernels.slots import abandon_expired, place, preempt, victim_slot


@kernel
def schedule(sim, r, at_ps):
    """Schedule one iteration at `at_ps`, behind the executing one if there is one; none if there is nothing to run."""
    deployment, replica = sim.deployment, sim.replicas[r]
    if replica.next_deadline_at_ps <= at_ps:
        abandon_expired(sim, r, at_ps)
    preempted = 0
    if replica.pool_is_stale:
        preempted = refit_pool(sim, r, at_ps)
    free_before = replica.num_blocks - replica.used_blocks
    iteration = replica.batch.queued if replica.end_at_ps >= 0 else replica.batch.executing
    threshold = deployment.long_prefill_threshold if replica.num_running + replica.num_waiting > 1 else 0
    first, plain, plain_context = plain_decodes(sim, r)
    budget = sim.environment.token_budget - plain
    if first < replica.num_running:
        budget, newly = schedule_running(sim, r, at_ps, iteration, threshold, budget, first)
        preempted += newly
    before_admission = replica.num_running
    if preempted == 0 and replica.num_waiting > 0 and budget > 0:
        admit(sim, r, at_ps, iteration, threshold, budget)
    launch(sim, r, at_ps, iteration, first, plain, plain_context, before_admission, free_before)


@rare_kernel
def refit_pool(sim, r, at_ps):
    """Step 1: size the pool by the knobs, preempting until what is held fits. Returns the number preempted."""
    replica = sim.replicas[r]
    num_before = replica.num_blocks
    set_pool_size(sim, r)
    preempted = 0
    while replica.used_blocks > replica.num_blocks:
        preempt(sim, r, victim_slot(sim, r), at_ps)
        preempted += 1
    if sim.deployment.prefix_caching:
        resize_cache(sim, r, num_before)
    return preempted


@kernel
def plain_decodes(sim, r):
    """Schedule the leading run of decoding requests in one pass: a token and perhaps a block each.

    Only when no block can run short in this step, so that nothing is preempted; otherwise zeros and no change. Returns
    the length of the run, how many of it are scheduled (all but those whose last token is in flight) and their context.
    """
    deployment, replica, batch = sim.deployment, sim.replicas[r], sim.replicas[r].batch
    if deployment.step_every_iteration or sim.environment.speculation_depth > 0 or replica.num_stalled > 0:
        return 0, 0, 0
    if deployment.async_scheduling and (replica.is_prefill or has_drafts_in_flight(replica)):
        return 0, 0, 0
    plain = replica.num_running
    spare = replica.num_blocks - replica.used_blocks
    # Requests in prefill are the latest ones, so the search for the first of them starts at the end.
    prefilling = replica.num_prefilling
    while prefilling > 0:
        plain -= 1
        prefilling -= batch.computed[plain] < batch.target[plain]
        spare -= blocks_for(deployment, batch.known[plain] + 1) - batch.held_blocks[plain]
    if plain > sim.environment.token_budget or spare < plain:
        return 0, 0, 0
    if deployment.prefix_caching:
        key_decoded(sim, r, plain, 0, 1)
    if deployment.async_scheduling:
        scheduled, context, grown = place_behind(deployment, batch, plain)
    else:
        scheduled = plain
        context, grown = place_plain(deployment, batch, plain)
    if grown > 0:
        use_blocks(sim, r, grown)
    return plain, scheduled, context


@kernel
def has_drafts_in_flight(replica):
    """Whether some running request has more than one token in flight."""
    in_flight = replica.batch.in_flight
    most = 0
    for i in range(replica.num_running):
        most = max(most, in_flight[i])
    return most > 1


@kernel
def hold_tokens(deployment, batch, slots, count):
    """Let each of the leading slots compute and hold `count` more tokens. Returns the blocks they need."""
    computed, held = batch.computed, batch.held_blocks
    mask, shift = np.int32(deployment.block_tokens - 1), np.int32(deployment.block_shift & 31)
    grown, stop, more = ZERO, np.int32(slots), np.int32(count)
    for i in range(whole_vectors(slots)):
        is_in = np.int32(i) < stop
        after = np.int32(computed[i] + (more if is_in else ZERO))
        needed = np.int32(np.int32(after + mask) >> shift)
        holding = needed if is_in and needed > held[i] else held[i]
        grown = np.int32(grown + np.int32(holding - held[i]))
        computed[i] = after
        held[i] = holding
    return np.int64(grown)


@kernel
def place_plain(deployment, batch, plain):
    """Schedule one token for each of the leading slots. Returns (their context, blocks they need)."""
    grown = hold_tokens(deployment, batch, plain, 1)
    return context_of(batch, plain), grown


@kernel
def context_of(batch, slots):
    """Computed tokens of the leading slots."""
    total, stop = ZERO, np.int32(slots)
    for i in range(whole_vectors(slots)):
        total = np.int32(total + (batch.computed[i] if np.int32(i) < stop else ZERO))
    return np.int64(total)


@kernel
def place_behind(deployment, batch, plain):
    """Schedule one token for each of the leading slots whose last one is not in flight.

    Returns (their number, their context, blocks they need).
    """
    computed, held, in_flight = batch.computed, batch.held_blocks, batch.in_flight
    mask, shift = np.int32(deployment.block_tokens - 1), np.int32(deployment.block_shift & 31)
    scheduled, context, grown, stop = ZERO, ZERO, ZERO, np.int32(plain)
    for i in range(whole_vectors(plain)):
        is_in = np.int32(i) < stop
        is_ending = in_flight[i] > 0 and np.int32(batch.known[i] + 1) >= batch.last[i]
        is_scheduled = is_in and not is_ending
        after = np.int32(computed[i] + is_scheduled)
        needed = np.int32(np.int32(after + mask) >> shift)
        holding = needed if is_in and needed > held[i] else held[i]
        grown = np.int32(grown + np.int32(holding - held[i]))
        context = np.int32(context + (after if is_scheduled else ZERO))
        scheduled = np.int32(scheduled + is_scheduled)
        computed[i] = after
        held[i] = holding
        in_flight[i] += is_scheduled
    return np.int64(scheduled), np.int64(context), np.int64(grown)


@kernel
def schedule_running(sim, r, at_ps, iteration, threshold, budget, first):
    """Step 2 from slot `first` on. Returns (budget left, requests preempted)."""
    deployment, replica, batch = sim.deployment, sim.replicas[r], sim.replicas[r].batch
    depth = sim.environment.speculation_depth
    lookahead = lookahead_tokens(sim)
    is_prefill_replica = replica.is_prefill
    preempted = 0
    i = first
    while i < replica.num_running and budget > 0:
        computed, in_flight = batch.computed[i], batch.in_flight[i]
        is_ending = in_flight > 0 and (computed + 2 - in_flight >= batch.last[i] or is_prefill_replica)
        drafts = depth if computed >= batch.target[i] else 0
        n = batch.known[i] + drafts + in_flight - computed
        if 0 < threshold < n:
            n = threshold
        n = min(n, budget, deployment.max_model_len - 1 - computed)
        if is_ending or n <= 0:
            i += 1
            continue
        has_room = True
        while not grow(sim, r, i, computed + n + lookahead):
            victim = victim_slot(sim, r)
            budget += iteration.tokens[victim]
            preempt(sim, r, victim, at_ps)
            preempted += 1
            if victim == i:
                has_room = False
                break
            if victim < i:
                i -= 1
        if not has_room:
            break
        place(sim, r, iteration, i, n)
        budget -= n
        i += 1
    mark_stalled(sim, r, at_ps, iteration, i)
    return budget, preempted


@rare_kernel
def mark_stalled(sim, r, at_ps, iteration, first):
    """Note since when decoding requests that the budget left out have been without a token."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    for i in range(first, replica.num_running):
        progress = sim.progress[batch.request[i]]
        is_decoding = batch.computed[i] >= batch.target[i] and batch.in_flight[i] == 0
        if iteration.tokens[i] == 0 and is_decoding and progress.last_token_at_ps < 0:
            progress.last_token_at_ps = at_ps + sim.deployment.answer_ps
            progress.is_stalled = 1
            replica.num_stalled += 1
