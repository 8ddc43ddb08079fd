"""The paged KV pool of a replica: counters alone, or real blocks when prefixes are cached."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.lanes import ZERO, whole_vectors
from llmserve_env.engine.kernels.prefix_cache import enter, release, release_run, take_blocks
from llmserve_env.engine.layout import EVERY_BLOCK


@kernel
def blocks_for(deployment, tokens):
    """Blocks that hold this many tokens."""
    return (min(tokens, deployment.max_model_len) + deployment.block_tokens - 1) >> deployment.block_shift


@kernel
def request_in(batch, slot):
    """The request in a slot, widened to the integers of all request ids: numba compiles kernels once per width."""
    return np.int64(batch.request[slot])


@kernel
def lookahead_tokens(sim):
    """Tokens that every request holds blocks for beyond its scheduled ones: room for the drafts to come."""
    return sim.environment.speculation_depth if sim.deployment.draft_lookahead else 0


@kernel
def grow(sim, r, slot, tokens):
    """Let a running request hold `tokens`; False (and no change) when the pool is too small."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    held = batch.held_blocks[slot]
    needed = blocks_for(sim.deployment, tokens) - held
    if needed <= 0:
        return True
    if replica.used_blocks + needed > replica.num_blocks:
        return False
    use_blocks(sim, r, needed)
    batch.held_blocks[slot] = held + needed
    return True


@kernel
def use_blocks(sim, r, count):
    """Take `count` blocks into use; the caller has checked that they are free."""
    if sim.deployment.prefix_caching:
        take_blocks(sim, r, count)
    sim.replicas[r].used_blocks += count


@kernel
def free_blocks(sim, r, slot):
    """Free every block of a running request, last block first."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    held = batch.held_blocks[slot]
    if sim.deployment.prefix_caching:
        keyed = np.int64(batch.keyed_blocks[slot])
        shared = min(keyed, np.int64(batch.shared_blocks[slot]))
        replica.used_blocks -= held - keyed
        replica.num_keyless += held - keyed
        if keyed > shared:
            release_run(sim, r, keyed - shared)
        release(sim, r, np.int64(batch.table_row[slot]), shared)
        replica.num_tracked -= batch.shared_blocks[slot] == EVERY_BLOCK
    else:
        replica.used_blocks -= held
    batch.held_blocks[slot] = 0
    batch.keyed_blocks[slot] = 0


@rare_kernel
def key_full_blocks(sim, r, slot, tokens):
    """Give a key to the blocks that `tokens` known tokens fill."""
    batch = sim.replicas[r].batch
    full = tokens >> sim.deployment.block_shift
    for j in range(batch.keyed_blocks[slot], min(full, np.int64(batch.shared_blocks[slot]))):
        sim.block_table[r, batch.table_row[slot], j] = enter(sim, r, request_in(batch, slot), j)
    if full > batch.keyed_blocks[slot]:
        batch.keyed_blocks[slot] = full


@kernel
def is_ending(batch, slot):
    """Whether the token in flight of a decoding request is its last one."""
    return batch.in_flight[slot] > 0 and batch.known[slot] + 1 >= batch.last[slot]


@kernel
def key_decoded(sim, r, slots, first, count):
    """Give a key to the blocks that decoding requests fill in `count` iterations of the same leading slots.

    The first of these iterations fills blocks up to `first` tokens beyond the known ones.
    """
    batch, shift = sim.replicas[r].batch, sim.deployment.block_shift
    known, keyed, shared = batch.known, batch.keyed_blocks, batch.shared_blocks
    stop, more, narrow_shift = np.int32(slots), np.int32(first + count - 1), np.int32(shift & 31)
    if sim.replicas[r].num_tracked == 0:
        for i in range(whole_vectors(slots)):
            full = np.int32(np.int32(known[i] + more) >> narrow_shift)
            keyed[i] = full if np.int32(i) < stop and full > keyed[i] else keyed[i]
        return
    num_filled, slot_sum = ZERO, ZERO
    for i in range(whole_vectors(slots)):
        full = np.int32(np.int32(known[i] + more) >> narrow_shift)
        is_filled = np.int32(i) < stop and full > keyed[i]
        is_tracked = shared[i] == EVERY_BLOCK
        num_filled = np.int32(num_filled + (is_filled and is_tracked))
        slot_sum = np.int32(slot_sum + (np.int32(i) if is_filled and is_tracked else ZERO))
        keyed[i] = full if is_filled and not is_tracked else keyed[i]
    if num_filled == 1:
        # A single slot is the sum of the slots, so there is no need to search for it.
        i = np.int64(slot_sum)
        if not is_ending(batch, i):
            key_full_blocks(sim, r, i, known[i] + np.int64(more))
    elif num_filled > 1:
        key_tracked(sim, r, slots, first, count)


@rare_kernel
def key_tracked(sim, r, slots, first, count):
    """Enter the keys of the blocks that several slots fill, in order of iterations, then of slots."""
    batch, shift = sim.replicas[r].batch, sim.deployment.block_shift
    for tokens in range(first, first + count):
        for i in range(slots):
            is_filled = (batch.known[i] + tokens) >> shift > batch.keyed_blocks[i]
            if is_filled and batch.shared_blocks[i] == EVERY_BLOCK and not is_ending(batch, i):
                key_full_blocks(sim, r, i, batch.known[i] + tokens)


@rare_kernel
def track(sim, r, slot):
    """Make every block of this request findable, because it is preempted and will look for them."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    for j in range(batch.shared_blocks[slot], batch.keyed_blocks[slot]):
        sim.block_table[r, batch.table_row[slot], j] = enter(sim, r, request_in(batch, slot), j)
    replica.num_tracked += batch.shared_blocks[slot] != EVERY_BLOCK
    batch.shared_blocks[slot] = EVERY_BLOCK


@rare_kernel
def set_pool_size(sim, r):
    """Set the blocks and reserved bytes that the knobs and the loaded tier give this replica."""
    deployment, environment, replica = sim.deployment, sim.environment, sim.replicas[r]
    fixed = deployment.weight_bytes[replica.tier]
    if environment.speculation_depth > 0:
        fixed += deployment.draft_bytes
    if deployment.num_blocks_override >= 0:
        replica.num_blocks = int(environment.kv_budget_fraction * deployment.num_blocks_override)
    else:
        available = deployment.memory_limit_bytes - fixed - deployment.activation_reserve_bytes
        replica.num_blocks = max(int(environment.kv_budget_fraction * available), 0) // deployment.block_bytes
    replica.reserved_bytes = fixed + replica.num_blocks * deployment.block_bytes
    replica.pool_is_stale = 0
