"""The end of an iteration: tokens appear, drafts are judged, requests finish or move on."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.costs import MAX_SPECULATION_DEPTH
from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.decision_log import log_emission, log_finish
from llmserve_env.engine.kernels.kv_pool import free_blocks, key_decoded, key_full_blocks, request_in
from llmserve_env.engine.kernels.lanes import ZERO, whole_vectors
from llmserve_env.engine.kernels.latency import output_ps
from llmserve_env.engine.kernels.queues import dequeue, insert_handoff
from llmserve_env.engine.kernels.random import uniform
from llmserve_env.engine.kernels.recording import count_gaps, finish, first_token
from llmserve_env.engine.kernels.restart import seconds_for_bytes_ps
from llmserve_env.engine.kernels.slots import remove_slot, remove_unscheduled_slot
from llmserve_env.engine.layout import NO_OUTPUT
from llmserve_env.rng import SPECULATION_STREAM


@kernel
def complete(sim, r):
    """Process the output of the executing iteration; the queued one, if any, starts executing.

    Tokens are stamped with the time at which clients receive them.
    """
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    executing, queued = batch.executing, batch.queued
    done, plain = replica.done_at_ps, replica.num_plain
    duration, end = done - replica.start_at_ps, done + sim.deployment.answer_ps
    sim.window.prefill_tokens += replica.prefill_tokens
    replica.free_at_ps = done
    replica.may_queue = 1
    are_all_plain = plain == replica.num_running and replica.num_stale == 0
    if replica.num_stale > 0:
        emit_stale(sim, r, end)
    i = 0
    if plain > 0:
        count_gaps(sim.window, duration, plain)
        i = plain - advance_plain(sim, r, plain, 1, end)
    while i < replica.num_running:
        has_left = False
        if executing.tokens[i] > 0:
            executing.tokens[i] = 0
            if executing.drafts[i] != NO_OUTPUT:
                has_left = emit(sim, r, i, end)
        i += not has_left
    if not are_all_plain:
        count_bursts(sim, r, duration)
    replica.num_plain = replica.queued_num_plain
    replica.queued_num_plain = 0
    replica.start_at_ps, replica.end_at_ps = done, replica.queued_end_at_ps
    replica.prefill_tokens = replica.queued_prefill_tokens
    replica.queued_end_at_ps = -1
    replica.queued_prefill_tokens = 0
    if replica.end_at_ps >= 0:
        replica.done_at_ps = replica.end_at_ps
        if sim.deployment.has_host:
            follow_queued(sim.deployment, replica, done)
        for i in range(replica.num_plain, replica.num_running):
            executing.tokens[i], executing.drafts[i] = queued.tokens[i], queued.drafts[i]
            queued.tokens[i] = 0


@rare_kernel
def follow_queued(deployment, replica, done):
    """Make the queued iteration the executing one; its output is processed after `done`."""
    replica.gpu_start_at_ps, replica.gpu_ps = replica.queued_gpu_start_at_ps, replica.queued_gpu_ps
    replica.num_sequences = replica.queued_num_sequences
    replica.done_at_ps = max(replica.end_at_ps, done) + output_ps(deployment, replica.num_sequences)


@kernel
def advance_plain(sim, r, plain, iterations, end):
    """Emit one token per iteration for each of the leading slots. Returns how many requests have finished."""
    deployment, replica, batch = sim.deployment, sim.replicas[r], sim.replicas[r].batch
    known, last = batch.known, batch.last
    is_scheduled = deployment.async_scheduling or plain < replica.num_running
    finished, stop, more = ZERO, np.int32(plain), np.int32(iterations)
    for i in range(whole_vectors(plain)):
        is_in = np.int32(i) < stop
        after = np.int32(known[i] + (more if is_in else ZERO))
        finished = np.int32(finished + (is_in and after == last[i]))
        known[i] = after
    sim.window.output_tokens += plain * iterations
    if deployment.async_scheduling:
        land_tokens(sim, r, plain)
    i, leaving = 0, np.int64(finished)
    while leaving > 0:
        if known[i] == last[i]:
            finish(sim, request_in(batch, i), end, replica.tier)
            free_blocks(sim, r, i)
            if is_scheduled:
                remove_slot(sim, r, i)
            else:
                remove_unscheduled_slot(sim, r, i)
            leaving -= 1
        else:
            i += 1
    return np.int64(finished)


@kernel
def land_tokens(sim, r, plain):
    """Account for the arrived token of each leading slot, which may have filled a block."""
    in_flight = sim.replicas[r].batch.in_flight
    stop = np.int32(plain)
    for i in range(whole_vectors(plain)):
        in_flight[i] -= np.int32(i) < stop
    if sim.deployment.prefix_caching:
        key_decoded(sim, r, plain, -1, 1)


@kernel
def accepted_drafts(sim, q, emitted, drafts):
    """Leading drafts that the target model agrees with; the verdict on a draft depends on its output position alone."""
    accepted = 0
    if sim.recorded.shape[0] > 0:
        while accepted < drafts and emitted + accepted < sim.recorded.shape[1] and sim.recorded[q, emitted + accepted]:
            accepted += 1
        return accepted
    probability = sim.requests[q].acceptance
    seed = sim.environment.seed
    while (
        accepted < drafts
        and uniform(seed, np.uint64(SPECULATION_STREAM), np.uint64(q), np.uint64(emitted + accepted)) < probability
    ):
        accepted += 1
    return accepted


@kernel
def count_tokens(sim, r, q, tokens, end):
    """Count tokens of request q that reach its client at `end`."""
    progress, replica = sim.progress[q], sim.replicas[r]
    sim.window.output_tokens += tokens
    if sim.log.size > 0:
        log_emission(sim, r, end, q, tokens)
    if progress.first_token_at_ps < 0:
        first_token(sim, q, end, replica.tier)
        return
    if progress.last_token_at_ps < 0:
        # Requests that emit equally many tokens have equal gaps, counted together when the iteration is done.
        replica.num_emitting[tokens] += 1
        return
    gap = end - progress.last_token_at_ps
    progress.last_token_at_ps = -1
    if progress.is_stalled:
        progress.is_stalled = 0
        replica.num_stalled -= 1
    count_gaps(sim.window, gap // tokens, tokens)


@kernel
def count_bursts(sim, r, duration):
    """Count the inter-token gaps of requests that also had a token in the previous iteration."""
    num_emitting = sim.replicas[r].num_emitting
    for tokens in range(1, MAX_SPECULATION_DEPTH + 2):
        if num_emitting[tokens] > 0:
            count_gaps(sim.window, duration // tokens, num_emitting[tokens] * tokens)
            num_emitting[tokens] = 0


@kernel
def emit(sim, r, i, end):
    """Process one request's output. True if the request has left the batch."""
    deployment, batch = sim.deployment, sim.replicas[r].batch
    q, drafts = request_in(batch, i), np.int64(batch.executing.drafts[i])
    prompt = sim.requests[q].prompt_tokens
    emitted = batch.known[i] - prompt
    accepted = 0
    if drafts > 0:
        accepted = accepted_drafts(sim, q, emitted, drafts)
        sim.window.drafted_tokens += drafts
        sim.window.accepted_tokens += accepted
        batch.computed[i] -= drafts - accepted
    tokens = min(1 + accepted, batch.last[i] - batch.known[i])
    batch.known[i] += tokens
    if deployment.async_scheduling:
        batch.in_flight[i] -= drafts - accepted + tokens
        if deployment.prefix_caching:
            key_full_blocks(sim, r, i, min(batch.computed[i] - batch.in_flight[i], np.int64(batch.known[i])))
    count_tokens(sim, r, q, tokens, end)
    if batch.known[i] == batch.last[i]:
        finish(sim, q, end, sim.replicas[r].tier)
        if sim.log.size > 0:
            log_finish(sim, r, end, q)
    elif sim.replicas[r].is_prefill:
        hand_off(sim, q, emitted + tokens, prompt + emitted, end)
    else:
        return False
    free_blocks(sim, r, i)
    remove_slot(sim, r, i)
    return True


@rare_kernel
def hand_off(sim, q, emitted, computed, end):
    """Send request q, with which a prefill replica is done, and its KV to a base replica."""
    deployment = sim.deployment
    sim.progress[q].emitted = emitted
    sim.progress[q].is_transferred = 1
    sim.progress[q].last_token_at_ps = end
    delay = seconds_for_bytes_ps(computed * deployment.kv_bytes_per_token, deployment.kv_transfer_bytes_per_s)
    insert_handoff(sim, q, end - deployment.answer_ps + delay)


@rare_kernel
def emit_stale(sim, r, end):
    """Process the output of requests that were preempted while it was in flight: its tokens count, even the last."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    for i in range(replica.num_stale):
        q = np.int64(batch.stale[i])
        request, progress = sim.requests[q], sim.progress[q]
        drafts = progress.stale_items - 1
        progress.stale_items = 0
        accepted = accepted_drafts(sim, q, np.int64(progress.emitted), drafts)
        sim.window.drafted_tokens += drafts
        sim.window.accepted_tokens += accepted
        tokens = min(1 + accepted, request.output_tokens - progress.emitted)
        progress.emitted += tokens
        count_tokens(sim, r, q, tokens, end)
        progress.last_token_at_ps = end
        if progress.emitted == request.output_tokens:
            dequeue(sim, r, q)
            finish(sim, q, end, replica.tier)
            if sim.log.size > 0:
                log_finish(sim, r, end, q)
    replica.num_stale = 0
