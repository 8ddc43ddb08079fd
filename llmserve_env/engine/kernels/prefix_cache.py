"""Block identities, needed only with prefix caching: which block holds which tokens, and which free block goes next.

Free blocks without a key are taken first (from a stack; their order is immaterial), then those with a key, least
recently freed first. A key is (stream, block index); hash chains keep the block entered first in front.
"""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import rare_kernel

NO_KEY = 0
NOT_IN_POOL = -1
"""In place of a number of references: the pool has shrunk and the block does not exist at present."""


@rare_kernel
def block_key(sim, q, j):
    """Key of block j of request q (never NO_KEY)."""
    request = sim.requests[q]
    stream = request.prefix_stream if j < request.prefix_blocks else request.own_stream
    return ((stream + 1) << 24) | j


@rare_kernel
def bucket_of(sim, key):
    """Bucket of a key; the number of buckets is a power of two."""
    mixed = (key ^ (key >> 21)) * 0x9E3779B1
    return (mixed ^ (mixed >> 15)) & (sim.buckets.shape[1] - 1)


@rare_kernel
def lookup(sim, r, key):
    """The block entered first under this key, or -1."""
    b = sim.buckets[r, bucket_of(sim, key)]
    while b >= 0 and sim.blocks[r, b].key != key:
        b = sim.blocks[r, b].chain_next
    return b


@rare_kernel
def enter(sim, r, b, key):
    """Give block b a key, behind earlier blocks of its chain."""
    sim.blocks[r, b].key = key
    sim.blocks[r, b].chain_next = -1
    bucket = bucket_of(sim, key)
    last = sim.buckets[r, bucket]
    if last < 0:
        sim.buckets[r, bucket] = b
        return
    while sim.blocks[r, last].chain_next >= 0:
        last = sim.blocks[r, last].chain_next
    sim.blocks[r, last].chain_next = b


@rare_kernel
def forget(sim, r, b):
    """Drop block b's key."""
    block = sim.blocks[r, b]
    bucket = bucket_of(sim, block.key)
    previous, current = -1, sim.buckets[r, bucket]
    while current != b:
        previous, current = current, sim.blocks[r, current].chain_next
    if previous < 0:
        sim.buckets[r, bucket] = block.chain_next
    else:
        sim.blocks[r, previous].chain_next = block.chain_next
    block.key = NO_KEY


@rare_kernel
def push_keyless(sim, r, b):
    """Put block b on the stack of free blocks without a key."""
    replica = sim.replicas[r]
    sim.blocks[r, replica.num_keyless].keyless = b
    replica.num_keyless += 1


@rare_kernel
def unlink_keyed(sim, r, b):
    """Take block b out of the list of free blocks with a key."""
    replica, block = sim.replicas[r], sim.blocks[r, b]
    if block.older < 0:
        replica.lru_head = block.newer
    else:
        sim.blocks[r, block.older].newer = block.newer
    if block.newer < 0:
        replica.lru_tail = block.older
    else:
        sim.blocks[r, block.newer].older = block.older
    replica.num_keyed_free -= 1


@rare_kernel
def take_block(sim, r):
    """A free block; the caller has checked that there is one."""
    replica = sim.replicas[r]
    if replica.num_keyless > 0:
        replica.num_keyless -= 1
        return sim.blocks[r, replica.num_keyless].keyless
    b = replica.lru_head
    unlink_keyed(sim, r, b)
    forget(sim, r, b)
    return b


@rare_kernel
def release_block(sim, r, b):
    """Drop one reference; the last one frees the block."""
    replica, block = sim.replicas[r], sim.blocks[r, b]
    block.references -= 1
    if block.references > 0:
        return
    replica.used_blocks -= 1
    if block.key == NO_KEY:
        push_keyless(sim, r, b)
        return
    block.older, block.newer = replica.lru_tail, -1
    if replica.lru_tail < 0:
        replica.lru_head = b
    else:
        sim.blocks[r, replica.lru_tail].newer = b
    replica.lru_tail = b
    replica.num_keyed_free += 1


@rare_kernel
def cached_prefix(sim, r, q, known):
    """(hit blocks, how many of them are free)."""
    limit = (known - 1) >> sim.deployment.block_shift
    hit, idle = 0, 0
    while hit < limit:
        b = lookup(sim, r, block_key(sim, q, hit))
        if b < 0:
            break
        idle += sim.blocks[r, b].references == 0
        hit += 1
    return hit, idle


@rare_kernel
def take_hits(sim, r, table_row, q, hit):
    """Reference the hit blocks for a request being admitted."""
    for j in range(hit):
        b = lookup(sim, r, block_key(sim, q, j))
        if sim.blocks[r, b].references == 0:
            unlink_keyed(sim, r, b)
            sim.replicas[r].used_blocks += 1
        sim.blocks[r, b].references += 1
        sim.block_table[r, table_row, j] = b


@rare_kernel
def resize_blocks(sim, r, num_blocks):
    """Grow by blocks without a key, shrink by free ones in the order they would be taken; the caller has made room."""
    replica = sim.replicas[r]
    total = replica.used_blocks + replica.num_keyless + replica.num_keyed_free
    while total > num_blocks:
        sim.blocks[r, take_block(sim, r)].references = NOT_IN_POOL
        total -= 1
    b = 0
    while total < num_blocks:
        block = sim.blocks[r, b]
        if b >= replica.next_block:
            replica.next_block = b + 1
            block.references = NOT_IN_POOL
        if block.references == NOT_IN_POOL:
            block.references = 0
            push_keyless(sim, r, b)
            total += 1
        b += 1


@rare_kernel
def forget_all(sim, r):
    """Drop every key, as a restart does; every block must be free."""
    replica = sim.replicas[r]
    while replica.num_keyed_free > 0:
        b = replica.lru_head
        unlink_keyed(sim, r, b)
        forget(sim, r, b)
        push_keyless(sim, r, b)
