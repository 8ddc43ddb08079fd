"""The paged KV pool of a replica: counters alone, or real blocks when prefixes are cached."""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.kernels.prefix_cache import block_key, enter, release_block, resize_blocks, take_block


@kernel
def blocks_for(deployment, tokens):
    """Blocks that hold this many tokens."""
    return (min(tokens, deployment.max_model_len) + deployment.block_tokens - 1) >> deployment.block_shift


@kernel
def request_in(batch, slot):
    """The request in a slot, as wide as every other request id: numba compiles kernels again for each width."""
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
    if sim.deployment.prefix_caching:
        for j in range(held, held + needed):
            b = take_block(sim, r)
            sim.blocks[r, b].references = 1
            sim.block_table[r, batch.table_row[slot], j] = b
    replica.used_blocks += needed
    batch.held_blocks[slot] = held + needed
    return True


@kernel
def free_blocks(sim, r, slot):
    """Give back everything a running request holds, last block first."""
    replica, batch = sim.replicas[r], sim.replicas[r].batch
    held = batch.held_blocks[slot]
    if sim.deployment.prefix_caching:
        for j in range(held - 1, -1, -1):
            release_block(sim, r, sim.block_table[r, batch.table_row[slot], j])
    else:
        replica.used_blocks -= held
    batch.held_blocks[slot] = 0
    batch.keyed_blocks[slot] = 0


@rare_kernel
def key_full_blocks(sim, r, slot, tokens):
    """Enter the blocks that `tokens` known tokens fill."""
    batch = sim.replicas[r].batch
    full = tokens >> sim.deployment.block_shift
    for j in range(batch.keyed_blocks[slot], full):
        enter(sim, r, sim.block_table[r, batch.table_row[slot], j], block_key(sim, request_in(batch, slot), j))
    if full > batch.keyed_blocks[slot]:
        batch.keyed_blocks[slot] = full


@rare_kernel
def set_pool_size(sim, r):
    """Blocks and reserved bytes that the knobs and the loaded tier give this replica."""
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


@rare_kernel
def settle_pool(sim, r):
    """After preemptions have made room: add or remove physical blocks."""
    if sim.deployment.prefix_caching:
        resize_blocks(sim, r, sim.replicas[r].num_blocks)
