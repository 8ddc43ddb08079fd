"""Admissions: step 3 of forming an iteration. Waiting requests join the batch while budget, cap and blocks allow."""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.kv_pool import blocks_for, grow, lookahead_tokens
from llmserve_env.engine.kernels.prefix_cache import cached_prefix, shared_blocks, take_hits
from llmserve_env.engine.kernels.queues import dequeue, queue_head
from llmserve_env.engine.kernels.recording import judge
from llmserve_env.engine.kernels.slots import place
from llmserve_env.engine.layout import EVERY_BLOCK, MAX_RUNNING, REJECTED, RUNNING
from llmserve_env.units import PPM


@kernel
def admit(sim, r, at_ps, iteration, threshold, budget):
    """Admit from the head of the queue until budget, cap or blocks stop it."""
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
        start_running(sim, r, iteration, q, known, hit, hit_blocks, n)
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
    return blocks_for(deployment, tokens + lookahead_tokens(sim)) - hit_blocks <= free


@rare_kernel
def reject(sim, r, q, at_ps):
    """Refuse a waiting request that an empty replica cannot hold."""
    dequeue(sim, r, q)
    sim.progress[q].status = REJECTED
    sim.progress[q].finished_at_ps = at_ps
    sim.window.rejected += 1
    judge(sim, q, False, PPM)


@kernel
def start_running(sim, r, iteration, q, known, hit, hit_blocks, n):
    """Append request q to the batch with n tokens in this iteration."""
    replica, batch, progress = sim.replicas[r], sim.replicas[r].batch, sim.progress[q]
    dequeue(sim, r, q)
    slot = replica.num_running
    replica.num_running = slot + 1
    batch.request[slot] = q
    batch.known[slot] = known
    batch.computed[slot] = hit
    batch.target[slot] = known - 1 if progress.is_transferred else known
    batch.last[slot] = sim.requests[q].prompt_tokens + sim.requests[q].output_tokens
    batch.held_blocks[slot] = batch.keyed_blocks[slot] = hit_blocks
    batch.executing.tokens[slot] = batch.executing.drafts[slot] = 0
    batch.queued.tokens[slot] = batch.queued.drafts[slot] = 0
    batch.in_flight[slot] = 0
    if sim.deployment.prefix_caching:
        batch.shared_blocks[slot] = shared_blocks(sim, q)
        replica.num_tracked += batch.shared_blocks[slot] == EVERY_BLOCK
    if hit_blocks > 0:
        take_hits(sim, r, batch.table_row[slot], hit_blocks)
        sim.window.cached_tokens += hit
    grow(sim, r, slot, hit + n + lookahead_tokens(sim))
    place(sim, r, iteration, slot, n)
    replica.num_prefilling += not progress.is_transferred
    progress.status = RUNNING
    progress.is_fresh = 0
    progress.is_transferred = 0
