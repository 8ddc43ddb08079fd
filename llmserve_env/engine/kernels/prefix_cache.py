"""Which blocks can be found again, needed only with prefix caching, and which free block goes next.

Free blocks without a key are taken first, then those with a key, least recently freed first. A key is (stream, block
index); hash chains keep the block entered first in front.

Only blocks that another admission may find have separate entries. The other blocks of a request are only counted: while
in use, and once free as one run, because nobody looks for a single one of them again.
"""

from __future__ import annotations

import numpy as np

from llmserve_env.engine.kernels.compilation import kernel, rare_kernel
from llmserve_env.engine.layout import EVERY_BLOCK

NO_KEY = 0
KEY_SHIFT = 24
"""Bits of a key that hold the block's index in its stream."""


@kernel
def shared_blocks(sim, q):
    """Leading blocks of request q that another admission may find; a preempted request looks for all of its own."""
    is_private = sim.requests[q].own_stream < 0 and sim.progress[q].preemptions == 0
    return np.int64(sim.requests[q].prefix_blocks) if is_private else EVERY_BLOCK


@kernel
def stream_of(sim, q, j):
    """Stream of block j of request q, counted from 1, so that no key is NO_KEY."""
    request = sim.requests[q]
    return (request.prefix_stream if j < request.prefix_blocks else request.own_stream) + 1


@kernel
def first_bucket(stream):
    """Where the blocks of a stream begin, before the number of buckets is taken into account."""
    mixed = (stream ^ (stream >> 21)) * 0x9E3779B1
    return mixed ^ (mixed >> 15)


@kernel
def bucket_of(sim, key):
    """Bucket of a key; the number of buckets is a power of two. Blocks of a stream lie side by side in memory."""
    return (first_bucket(key >> KEY_SHIFT) + (key & ((1 << KEY_SHIFT) - 1))) & (sim.buckets.shape[1] - 1)


@kernel
def lookup(sim, r, bucket, key):
    """The entry made first under this key, or -1."""
    b = np.int64(sim.buckets[r, bucket & (sim.buckets.shape[1] - 1)])
    while b >= 0 and sim.entries[r, b].key != key:
        b = np.int64(sim.entries[r, b].chain_next)
    return b


@rare_kernel
def new_entry(sim, r):
    """An entry that is not in use."""
    replica = sim.replicas[r]
    if replica.num_unused > 0:
        replica.num_unused -= 1
        return np.int64(sim.entries[r, replica.num_unused].unused)
    replica.next_entry += 1
    return replica.next_entry - 1


@rare_kernel
def drop_entry(sim, r, b):
    """Return entry b to the unused ones."""
    replica = sim.replicas[r]
    sim.entries[r, replica.num_unused].unused = b
    replica.num_unused += 1


@rare_kernel
def enter(sim, r, q, j):
    """Make block j of request q findable, behind earlier blocks of its chain; returns its entry."""
    key = (stream_of(sim, q, j) << KEY_SHIFT) | j
    b = new_entry(sim, r)
    entry = sim.entries[r, b]
    entry.key, entry.references, entry.num_blocks, entry.chain_next = key, 1, 1, -1
    bucket = bucket_of(sim, key)
    last = np.int64(sim.buckets[r, bucket])
    if last < 0:
        sim.buckets[r, bucket] = b
        return b
    while sim.entries[r, last].chain_next >= 0:
        last = np.int64(sim.entries[r, last].chain_next)
    sim.entries[r, last].chain_next = b
    return b


@rare_kernel
def forget(sim, r, b):
    """Remove entry b from its hash chain and drop it."""
    entry = sim.entries[r, b]
    if entry.key != NO_KEY:
        bucket = bucket_of(sim, entry.key)
        previous, current = -1, np.int64(sim.buckets[r, bucket])
        while current != b:
            previous, current = current, np.int64(sim.entries[r, current].chain_next)
        if previous < 0:
            sim.buckets[r, bucket] = entry.chain_next
        else:
            sim.entries[r, previous].chain_next = entry.chain_next
    drop_entry(sim, r, b)


@rare_kernel
def append_free(sim, r, b):
    """Append entry b, which has become free, to the list of free entries."""
    replica, entry = sim.replicas[r], sim.entries[r, b]
    entry.older, entry.newer = replica.lru_tail, -1
    if replica.lru_tail < 0:
        replica.lru_head = b
    else:
        sim.entries[r, replica.lru_tail].newer = b
    replica.lru_tail = b


@rare_kernel
def unlink_free(sim, r, b):
    """Remove entry b from the list of free entries."""
    replica, entry = sim.replicas[r], sim.entries[r, b]
    if entry.older < 0:
        replica.lru_head = entry.newer
    else:
        sim.entries[r, entry.older].newer = entry.newer
    if entry.newer < 0:
        replica.lru_tail = entry.older
    else:
        sim.entries[r, entry.newer].older = entry.older


@rare_kernel
def take_blocks(sim, r, count):
    """Take free blocks out of the pool; the caller has checked that there are enough."""
    replica = sim.replicas[r]
    unkeyed = min(count, replica.num_keyless)
    replica.num_keyless -= unkeyed
    count -= unkeyed
    while count > 0:
        b = replica.lru_head
        taken = min(count, np.int64(sim.entries[r, b].num_blocks))
        sim.entries[r, b].num_blocks -= taken
        count -= taken
        if sim.entries[r, b].num_blocks == 0:
            unlink_free(sim, r, b)
            forget(sim, r, b)


@rare_kernel
def release_run(sim, r, count):
    """Free blocks whose keys nobody looks up; they keep their place in the order."""
    b = new_entry(sim, r)
    sim.entries[r, b].key, sim.entries[r, b].num_blocks = NO_KEY, count
    append_free(sim, r, b)
    sim.replicas[r].used_blocks -= count


@kernel
def release(sim, r, table_row, count):
    """Drop a reference of each of the leading blocks that the block table names, last block first.

    Dropping the last reference frees a block. Counts stay in local variables until the end, which halves the time.
    """
    replica, entries, tail, freed = sim.replicas[r], sim.entries[r], sim.replicas[r].lru_tail, 0
    for j in range(count - 1, -1, -1):
        b = np.int64(sim.block_table[r, table_row, j])
        entries[b].references -= 1
        if entries[b].references > 0:
            continue
        entries[b].older, entries[b].newer = tail, -1
        if tail < 0:
            replica.lru_head = b
        else:
            entries[tail].newer = b
        tail = b
        freed += 1
    replica.lru_tail = tail
    replica.used_blocks -= freed


@kernel
def cached_prefix(sim, r, q, known):
    """(hit blocks, how many of them are free); the next slot's row of the block table names them."""
    row = sim.replicas[r].batch.table_row[sim.replicas[r].num_running]
    limit = min((known - 1) >> sim.deployment.block_shift, shared_blocks(sim, q))
    hit, idle = 0, 0
    stream, bucket, private = -1, 0, sim.requests[q].prefix_blocks
    while hit < limit:
        if hit == 0 or hit == private:
            stream = stream_of(sim, q, hit)
            bucket = first_bucket(stream)
        b = lookup(sim, r, bucket + hit, (stream << KEY_SHIFT) | hit)
        if b < 0:
            break
        idle += sim.entries[r, b].references == 0
        sim.block_table[r, row, hit] = b
        hit += 1
    return hit, idle


@kernel
def take_hits(sim, r, table_row, hit):
    """Reference the hit blocks, which the block table names, for a request being admitted."""
    taken = 0
    for j in range(hit):
        b = np.int64(sim.block_table[r, table_row, j])
        if sim.entries[r, b].references == 0:
            unlink_free(sim, r, b)
            taken += 1
        sim.entries[r, b].references += 1
    sim.replicas[r].used_blocks += taken


@rare_kernel
def resize_cache(sim, r, num_before):
    """The pool grows by blocks without a key, or shrinks by free ones in the order they would be taken."""
    more = sim.replicas[r].num_blocks - num_before
    if more < 0:
        take_blocks(sim, r, -more)
    else:
        sim.replicas[r].num_keyless += more


@rare_kernel
def forget_all(sim, r):
    """Drop every key, as a restart does; every block must be free."""
    replica = sim.replicas[r]
    while replica.lru_head >= 0:
        b = replica.lru_head
        replica.num_keyless += sim.entries[r, b].num_blocks
        unlink_free(sim, r, b)
        forget(sim, r, b)
