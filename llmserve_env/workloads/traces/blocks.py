"""Sessions and shared prefixes, recovered from the block hashes of a trace.

Equal hashes mean equal blocks after equal prefixes, so all prompts together form a tree. A system prompt ends at a
block after which many prompts differ; a session continues when a prompt contains a whole earlier prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from llmserve_env.arrays import Array

MIN_BRANCHES = 20
"""Different continuations that mark the end of a system prompt; edits and retries of one session make far fewer."""


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Per request: its session, and the prefix it shares with other sessions (-1 and 0 tokens for none)."""

    session_id: Array
    prefix_id: Array
    prefix_tokens: Array


def shared_prefixes(block_ids: list[Array], prompt_tokens: Array, block_tokens: int) -> SharedPrefixes:
    """Sessions and prefixes of requests given in order of arrival."""
    hubs = _hubs(block_ids)
    prefix_blocks = np.array([_depth(blocks, hubs) for blocks in block_ids], dtype=np.int64)
    last_block = np.array([blocks[n - 1] if n else -1 for blocks, n in zip(block_ids, prefix_blocks, strict=True)])
    names, prefix_id = np.unique(last_block, return_inverse=True)
    if names.size and names[0] == -1:
        prefix_id = prefix_id - 1
    return SharedPrefixes(
        _sessions(block_ids, prefix_blocks, prompt_tokens // block_tokens),
        prefix_id.astype(np.int64),
        np.minimum(prefix_blocks * block_tokens, prompt_tokens),
    )


def _hubs(block_ids: list[Array]) -> frozenset[int]:
    """Blocks that at least `MIN_BRANCHES` different blocks follow."""
    steps = [np.column_stack((blocks[:-1], blocks[1:])) for blocks in block_ids if len(blocks) > 1]
    if not steps:
        return frozenset()
    pairs = np.unique(np.concatenate(steps), axis=0)
    blocks, branches = np.unique(pairs[:, 0], return_counts=True)
    return frozenset(blocks[branches >= MIN_BRANCHES].tolist())


def _depth(blocks: Array, hubs: frozenset[int]) -> int:
    """Blocks of a prompt up to the last hub on its path."""
    return max((i + 1 for i, block in enumerate(blocks.tolist()) if block in hubs), default=0)


def _sessions(block_ids: list[Array], prefix_blocks: Array, full_blocks: Array) -> Array:
    latest: dict[int, int] = {}
    session_id = np.empty(len(block_ids), dtype=np.int64)
    num_sessions = 0
    for row, blocks in enumerate(block_ids):
        known = _num_known(blocks, latest)
        before = latest[int(blocks[known - 1])] if known > prefix_blocks[row] else -1
        if before >= 0 and known >= full_blocks[before]:
            session_id[row] = session_id[before]
        else:
            session_id[row] = num_sessions
            num_sessions += 1
        latest.update(dict.fromkeys(blocks.tolist(), row))
    return session_id


def _num_known(blocks: Array, latest: dict[int, int]) -> int:
    for known, block in enumerate(blocks.tolist()):
        if block not in latest:
            return known
    return len(blocks)
