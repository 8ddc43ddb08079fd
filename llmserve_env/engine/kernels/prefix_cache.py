"""Block identities, needed only with prefix caching: which block holds which tokens, and which free block goes next.

Free blocks without a key are taken first (a stack, their order is immaterial), then keyed ones, least recently
freed first. A key is (stream, block index); hash chains keep the block entered first in front.
`sim.cache[r]` holds, per section of `num_cache_blocks`: references, LRU links, chain links, the stack of keyless free
blocks, keys, and then the hash buckets.
"""

from __future__ import annotations

from llmserve_env.engine.kernels.compilation import rare_kernel
from llmserve_env.engine.layout import BUCKETS, CHAIN_NEXT, KEYS, LRU_NEXT, LRU_PREV, REFS, UNKEYED

NO_KEY = 0


@rare_kernel
def block_key(sim, q, j):
    """Key of block j of request q (never NO_KEY)."""
    request = sim.requests[q]
    stream = request.prefix_stream if j < request.prefix_blocks else request.own_stream
    return ((stream + 1) << 24) | j


@rare_kernel
def section(sim, r, name):
    """One section of a replica's cache arrays."""
    size = sim.deployment.num_cache_blocks
    return sim.cache[r, name * size : (name + 1) * size]


@rare_kernel
def buckets(sim, r):
    """First block of each hash chain."""
    return sim.cache[r, BUCKETS * sim.deployment.num_cache_blocks :]


@rare_kernel
def bucket_of(key, num_buckets):
    """Bucket of a key; the table's size is a power of two."""
    mixed = (key ^ (key >> 21)) * 0x9E3779B1
    return (mixed ^ (mixed >> 15)) & (num_buckets - 1)


@rare_kernel
def lookup(sim, r, key):
    """The block entered first under this key, or -1."""
    keys, chain, heads = section(sim, r, KEYS), section(sim, r, CHAIN_NEXT), buckets(sim, r)
    b = heads[bucket_of(key, heads.shape[0])]
    while b >= 0 and keys[b] != key:
        b = chain[b]
    return b


@rare_kernel
def enter(sim, r, b, key):
    """Give block b a key, behind earlier blocks of its chain."""
    keys, chain, heads = section(sim, r, KEYS), section(sim, r, CHAIN_NEXT), buckets(sim, r)
    keys[b] = key
    chain[b] = -1
    h = bucket_of(key, heads.shape[0])
    last = heads[h]
    if last < 0:
        heads[h] = b
        return
    while chain[last] >= 0:
        last = chain[last]
    chain[last] = b


@rare_kernel
def forget(sim, r, b):
    """Drop block b's key."""
    keys, chain, heads = section(sim, r, KEYS), section(sim, r, CHAIN_NEXT), buckets(sim, r)
    h = bucket_of(keys[b], heads.shape[0])
    previous, current = -1, heads[h]
    while current != b:
        previous, current = current, chain[current]
    if previous < 0:
        heads[h] = chain[b]
    else:
        chain[previous] = chain[b]
    keys[b] = NO_KEY


@rare_kernel
def lru_remove(sim, r, b):
    """Take block b out of the keyed free list."""
    replica, older, newer = sim.replicas[r], section(sim, r, LRU_PREV), section(sim, r, LRU_NEXT)
    before, after = older[b], newer[b]
    if before < 0:
        replica.lru_head = after
    else:
        newer[before] = after
    if after < 0:
        replica.lru_tail = before
    else:
        older[after] = before
    replica.num_keyed_free -= 1


@rare_kernel
def take_block(sim, r):
    """A free block; the caller has checked that there is one."""
    replica = sim.replicas[r]
    if replica.num_unkeyed > 0:
        replica.num_unkeyed -= 1
        return section(sim, r, UNKEYED)[replica.num_unkeyed]
    b = replica.lru_head
    lru_remove(sim, r, b)
    forget(sim, r, b)
    return b


@rare_kernel
def release_block(sim, r, b):
    """Drop one reference; the last one frees the block."""
    replica, references = sim.replicas[r], section(sim, r, REFS)
    older, newer = section(sim, r, LRU_PREV), section(sim, r, LRU_NEXT)
    references[b] -= 1
    if references[b] > 0:
        return
    replica.used_blocks -= 1
    if section(sim, r, KEYS)[b] == NO_KEY:
        section(sim, r, UNKEYED)[replica.num_unkeyed] = b
        replica.num_unkeyed += 1
        return
    older[b], newer[b] = replica.lru_tail, -1
    if replica.lru_tail < 0:
        replica.lru_head = b
    else:
        newer[replica.lru_tail] = b
    replica.lru_tail = b
    replica.num_keyed_free += 1


@rare_kernel
def cached_prefix(sim, r, q, known):
    """(hit blocks, how many of them lie in the free list)."""
    limit = (known - 1) >> sim.deployment.block_shift
    hit, idle = 0, 0
    while hit < limit:
        b = lookup(sim, r, block_key(sim, q, hit))
        if b < 0:
            break
        idle += section(sim, r, REFS)[b] == 0
        hit += 1
    return hit, idle


@rare_kernel
def take_hits(sim, r, row, q, hit):
    """Reference the hit blocks for a request being admitted."""
    references = section(sim, r, REFS)
    for j in range(hit):
        b = lookup(sim, r, block_key(sim, q, j))
        if references[b] == 0:
            lru_remove(sim, r, b)
            sim.replicas[r].used_blocks += 1
        references[b] += 1
        sim.block_table[r, row * sim.deployment.blocks_per_request + j] = b


@rare_kernel
def resize_blocks(sim, r, num_blocks):
    """Grow with keyless blocks, shrink by free ones in free order; the caller has made room."""
    replica = sim.replicas[r]
    spare = section(sim, r, REFS)
    total = replica.used_blocks + replica.num_unkeyed + replica.num_keyed_free
    while total > num_blocks:
        spare[take_block(sim, r)] = -1
        total -= 1
    b = 0
    while total < num_blocks:
        if b >= replica.next_block:
            replica.next_block = b + 1
            spare[b] = -1
        if spare[b] == -1:
            spare[b] = 0
            section(sim, r, UNKEYED)[replica.num_unkeyed] = b
            replica.num_unkeyed += 1
            total += 1
        b += 1


@rare_kernel
def forget_all(sim, r):
    """A restarted engine remembers nothing; every block must be free."""
    replica = sim.replicas[r]
    while replica.num_keyed_free > 0:
        b = replica.lru_head
        lru_remove(sim, r, b)
        forget(sim, r, b)
        section(sim, r, UNKEYED)[replica.num_unkeyed] = b
        replica.num_unkeyed += 1
