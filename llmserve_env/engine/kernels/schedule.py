"""Forming one iteration, by vLLM V1's rules: running requests first, then admissions, within one token budget.

There is no decode phase and no prefill phase: a request's computed tokens catch up with its known ones.
`docs/engine.md` numbers the steps.
"""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.kv_pool import blocks_for, grow, key_full_blocks, set_pool_size, settle_pool
from llmserve_env.engine.kernels.latency import iteration_ps
from llmserve_env.engine.kernels.prefix_cache import cached_prefix, take_hits
from llmserve_env.engine.kernels.queues import dequeue, queue_head
from llmserve_env.engine.kernels.recording import PPM, judge, log_event
from llmserve_env.engine.kernels.restart import run_out_of_memory
from llmserve_env.engine.kernels.slots import abandon_expired, preempt, victim_slot
from llmserve_env.engine.layout import (
    COMPUTED,
    DRAFTS,
    HELD,
    IN_FLIGHT,
    KEYED,
    KNOWN,
    LAST,
    LOG_ITEM,
    LOG_STEP,
    MAX_RUNNING,
    NUM_MOVING_ROWS,
    NUM_SYNC_ROWS,
    QUEUED,
    QUEUED_DRAFTS,
    REJECTED,
    REQUEST,
    RUNNING,
    SCHEDULED,
    TABLE,
    TARGET,
)


@kernel
def schedule(sim, r, at_ps):
    """Schedule one iteration at `at_ps`; False when there was nothing to run."""
    deployment, replica = sim.deployment, sim.replicas[r]
    rows = NUM_MOVING_ROWS if deployment.step_every_iteration else NUM_SYNC_ROWS
    if replica.next_deadline_at_ps <= at_ps:
        abandon_expired(sim, r, at_ps, rows)
    preempted = 0
    if replica.pool_is_stale:
        preempted = refit_pool(sim, r, at_ps, rows)
    free_before = replica.num_blocks - replica.used_blocks
    row = QUEUED if replica.end_at_ps >= 0 else SCHEDULED
    threshold = deployment.long_prefill_threshold if replica.num_running + replica.num_waiting > 1 else 0
    plain, plain_context = plain_decodes(deployment, sim.environment, replica)
    replica.num_plain = plain
    budget = deployment.token_budget - plain
    if plain < replica.num_running:
        budget, newly = schedule_running(sim, r, at_ps, row, threshold, budget, plain, rows)
        preempted += newly
    before_admission = replica.num_running
    if preempted == 0 and replica.num_waiting > 0 and budget > 0:
        admit(sim, r, at_ps, row, threshold, budget)
    return launch(sim, r, at_ps, row, plain, plain_context, before_admission, free_before)


@rare_kernel
def refit_pool(sim, r, at_ps, rows):
    """Step 1: size the pool by the knobs, preempting until what is held fits. Returns the number preempted."""
    replica = sim.replicas[r]
    set_pool_size(sim, r)
    preempted = 0
    while replica.used_blocks > replica.num_blocks:
        preempt(sim, r, victim_slot(sim, r), at_ps, rows)
        preempted += 1
    settle_pool(sim, r)
    return preempted


@kernel
def plain_decodes(deployment, environment, replica):
    """Schedule the leading run of decoding requests in one pass: a token and perhaps a block each.

    Only when no block can run short in this step, so that nobody is preempted; otherwise 0 and no change. Returns their
    number and total context.
    """
    running = replica.running
    if deployment.step_every_iteration or environment.speculation_depth > 0 or replica.num_stalled > 0:
        return 0, 0
    plain = replica.num_running
    spare = replica.num_blocks - replica.used_blocks
    # Requests in prefill are the latest ones, so the search for the first of them starts at the end.
    prefilling = replica.num_prefilling
    while prefilling > 0:
        plain -= 1
        prefilling -= running[COMPUTED, plain] < running[TARGET, plain]
        spare -= blocks_for(deployment, running[KNOWN, plain] + 1) - running[HELD, plain]
    if plain > deployment.token_budget or spare < plain:
        return 0, 0
    computed, held = running[COMPUTED], running[HELD]
    mask, shift = deployment.block_tokens - 1, deployment.block_shift
    grown, context = 0, 0
    for i in range(plain):
        after = computed[i] + 1
        needed = max((after + mask) >> shift, held[i])
        grown += needed - held[i]
        context += after
        computed[i] = after
        held[i] = needed
    replica.used_blocks += grown
    return plain, context


@kernel
def schedule_running(sim, r, at_ps, row, threshold, budget, first, rows):
    """Step 2 from slot `first` on. Returns (budget left, requests preempted)."""
    deployment, replica, running = sim.deployment, sim.replicas[r], sim.replicas[r].running
    depth = sim.environment.speculation_depth
    lookahead = depth if deployment.draft_lookahead else 0
    is_prefill_replica = r >= deployment.num_replicas
    preempted = 0
    i = first
    while i < replica.num_running and budget > 0:
        computed, in_flight = running[COMPUTED, i], running[IN_FLIGHT, i]
        is_ending = in_flight > 0 and (computed + 2 - in_flight >= running[LAST, i] or is_prefill_replica)
        drafts = depth if computed >= running[TARGET, i] else 0
        n = running[KNOWN, i] + drafts + in_flight - computed
        if 0 < threshold < n:
            n = threshold
        n = min(n, budget, deployment.max_model_len - 1 - computed)
        if is_ending or n <= 0:
            i += 1
            continue
        has_room = True
        while not grow(sim, r, i, computed + n + lookahead):
            victim = victim_slot(sim, r)
            budget += running[row, victim]
            preempt(sim, r, victim, at_ps, rows)
            preempted += 1
            if victim == i:
                has_room = False
                break
            if victim < i:
                i -= 1
        if not has_room:
            break
        place(sim, r, row, i, n)
        budget -= n
        i += 1
    mark_stalled(sim, r, at_ps, row, i)
    return budget, preempted


@kernel
def place(sim, r, row, i, n):
    """Put n tokens of slot i into the iteration; note its drafts, or -1 when it will emit nothing.

    Blocks it fills are findable from here on, even by requests admitted in the same step.
    """
    running = sim.replicas[r].running
    if sim.deployment.prefix_caching:
        key_full_blocks(sim, r, i, min(running[COMPUTED, i] + n, running[KNOWN, i]))
    beyond = running[COMPUTED, i] + n - running[KNOWN, i] - running[IN_FLIGHT, i]
    running[row, i] = n
    running[row + 1, i] = beyond if beyond >= 0 else -1


@rare_kernel
def mark_stalled(sim, r, at_ps, row, first):
    """Remember since when decoding requests that the budget left out have been without a token."""
    replica, running = sim.replicas[r], sim.replicas[r].running
    for i in range(first, replica.num_running):
        progress = sim.progress[running[REQUEST, i]]
        is_decoding = running[COMPUTED, i] >= running[TARGET, i] and running[IN_FLIGHT, i] == 0
        if running[row, i] == 0 and is_decoding and progress.last_token_at_ps < 0:
            progress.last_token_at_ps = at_ps
            progress.is_stalled = 1
            replica.num_stalled += 1


@kernel
def admit(sim, r, at_ps, row, threshold, budget):
    """Step 3: admissions from the head of the queue until budget, cap or blocks stop them."""
    deployment, replica = sim.deployment, sim.replicas[r]
    cap = min(sim.environment.batch_cap, MAX_RUNNING)
    while budget > 0 and replica.num_waiting > 0 and replica.num_running < cap:
        q = queue_head(sim, r, sim.environment.priority_routing)
        known = sim.requests[q].prompt_tokens + sim.progress[q].emitted
        hit, hit_blocks, idle_hits = 0, 0, 0
        if sim.progress[q].is_transferred:
            hit = known - 1
        elif deployment.prefix_caching:
            hit_blocks, idle_hits = cached_prefix(sim, r, q, known)
            hit = hit_blocks << deployment.block_shift
        n = known - hit
        if 0 < threshold < n:
            n = threshold
        if (n > budget and not deployment.chunked_prefill) or not passes_gates(
            sim, r, known, hit + min(n, budget), hit_blocks, idle_hits
        ):
            if replica.num_running > 0:
                return
            reject(sim, r, q, at_ps)
            continue
        n = min(n, budget)
        start_running(sim, r, q, known, hit, hit_blocks, row, n)
        budget -= n


@kernel
def passes_gates(sim, r, known, tokens, hit_blocks, idle_hits):
    """Gates A and B of step 3."""
    deployment, replica = sim.deployment, sim.replicas[r]
    free = replica.num_blocks - replica.used_blocks - idle_hits
    if replica.num_running > 0:
        free -= int(deployment.watermark_fraction * (replica.num_blocks + 1))
    if deployment.reserve_full_prompt and blocks_for(deployment, known) - hit_blocks > free:
        return False
    lookahead = sim.environment.speculation_depth if deployment.draft_lookahead else 0
    return blocks_for(deployment, tokens + lookahead) - hit_blocks <= free


@rare_kernel
def reject(sim, r, q, at_ps):
    """Refuse a waiting request that an empty replica cannot hold."""
    dequeue(sim, r, q)
    sim.progress[q].status = REJECTED
    sim.progress[q].finished_at_ps = at_ps
    sim.window.rejected += 1
    judge(sim, q, False, PPM)


@kernel
def start_running(sim, r, q, known, hit, hit_blocks, row, n):
    """Append request q to the batch with n tokens in this iteration."""
    deployment, replica, running, progress = sim.deployment, sim.replicas[r], sim.replicas[r].running, sim.progress[q]
    dequeue(sim, r, q)
    slot = replica.num_running
    replica.num_running = slot + 1
    running[REQUEST, slot] = q
    running[KNOWN, slot] = known
    running[COMPUTED, slot] = hit
    running[TARGET, slot] = known - 1 if progress.is_transferred else known
    running[LAST, slot] = sim.requests[q].prompt_tokens + sim.requests[q].output_tokens
    running[HELD, slot] = hit_blocks
    for clear in (SCHEDULED, DRAFTS, QUEUED, QUEUED_DRAFTS, IN_FLIGHT):
        running[clear, slot] = 0
    running[KEYED, slot] = hit_blocks
    if hit_blocks > 0:
        take_hits(sim, r, running[TABLE, slot], q, hit_blocks)
        sim.window.cached_tokens += hit
    lookahead = sim.environment.speculation_depth if deployment.draft_lookahead else 0
    grow(sim, r, slot, hit + n + lookahead)
    place(sim, r, row, slot, n)
    replica.num_prefilling += not progress.is_transferred
    progress.status = RUNNING
    progress.is_fresh = 0
    progress.is_transferred = 0


@rare_kernel
def is_decode_item(sim, r, i, computed, is_admission):
    """Whether an item costs like decoding; the last token of a recomputation, alone in its chunk, does too."""
    target = sim.replicas[r].running[TARGET, i]
    if computed >= target:
        return True
    return (
        not is_admission
        and computed == target - 1
        and target > sim.requests[sim.replicas[r].running[REQUEST, i]].prompt_tokens
    )


@kernel
def launch(sim, r, at_ps, row, plain, plain_context, before_admission, free_before):
    """Steps 4 and 5: check memory, count the batch, and start it (or queue it behind the executing one)."""
    deployment, environment, replica, running = (
        sim.deployment,
        sim.environment,
        sim.replicas[r],
        sim.replicas[r].running,
    )
    sequences, decode_sequences, decode_tokens, prefill_tokens = plain, plain, plain, 0
    context, pairs = plain_context, 0
    for i in range(plain, replica.num_running):
        n = running[row, i]
        if n == 0:
            continue
        before = running[COMPUTED, i]
        running[COMPUTED, i] = before + n
        sequences += 1
        if is_decode_item(sim, r, i, before, i >= before_admission):
            decode_sequences += 1
            decode_tokens += n
            context += before + n
        else:
            prefill_tokens += n
            pairs += n * before + n * (n + 1) // 2
        replica.num_prefilling -= before < running[TARGET, i] <= before + n
        log_event(
            sim, LOG_ITEM, r, running[REQUEST, i], n, before, max(running[row + 1, i], 0), i >= before_admission, 0
        )
        if deployment.async_scheduling and running[row + 1, i] >= 0:
            running[IN_FLIGHT, i] += 1 + running[row + 1, i]
    tokens = decode_tokens + prefill_tokens
    if tokens == 0:
        return False
    memory = (
        replica.reserved_bytes
        + tokens * deployment.activation_bytes_per_token
        + sequences * deployment.logits_bytes_per_sequence
    )
    if deployment.num_blocks_override < 0 and memory > deployment.memory_limit_bytes:
        run_out_of_memory(sim, r, at_ps)
        return True
    sim.window.peak_memory_bytes = max(sim.window.peak_memory_bytes, memory)
    time = iteration_ps(
        deployment,
        replica.tier,
        environment.speculation_depth,
        sequences,
        decode_sequences,
        decode_tokens,
        prefill_tokens,
        context,
        pairs,
    )
    sim.window.iterations += 1
    sim.window.busy_ps += time
    start = at_ps
    if row == QUEUED:
        start = replica.end_at_ps
        replica.queued_end_at_ps = start + time
        replica.queued_prefill_tokens = prefill_tokens
    else:
        replica.start_at_ps = start
        replica.end_at_ps = start + time
        replica.prefill_tokens = prefill_tokens
    log_event(
        sim, LOG_STEP, r, at_ps, start, start + time, free_before, replica.num_blocks - replica.used_blocks, sequences
    )
    return True
