"""The paged KV pool of one replica: free blocks in eviction order, and the prefix cache over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .request import Request

Key = tuple[str, int, int]
"""(kind of token stream, its id, block index)."""


@dataclass(slots=True, eq=False)
class Block:
    """One block of KV memory."""

    key: Key | None = None
    holders: int = 0


class KvPool:
    """Blocks of one replica. Held = referenced by a request; free blocks may still carry a key."""

    def __init__(self, block_tokens: int, prefix_caching: bool) -> None:
        self.block_tokens = block_tokens
        self.prefix_caching = prefix_caching
        self.num_blocks = 0
        self.free_unkeyed: list[Block] = []
        # Dictionaries keep insertion order: the least recently freed block first, and the first one entered.
        self.free_keyed: dict[Block, None] = {}
        self.cached: dict[Key, dict[Block, None]] = {}

    @property
    def num_free(self) -> int:
        return len(self.free_unkeyed) + len(self.free_keyed)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_free

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def resize(self, num_blocks: int) -> None:
        """Grow with unkeyed blocks, or drop free blocks in free order."""
        while self.num_blocks < num_blocks:
            self.free_unkeyed.append(Block())
            self.num_blocks += 1
        while self.num_blocks > num_blocks:
            self._take_free_block()
            self.num_blocks -= 1

    def lookup(self, request: Request) -> list[Block]:
        """The longest run of cached blocks from block 0 that leaves at least one token to compute."""
        hit: list[Block] = []
        if not self.prefix_caching:
            return hit
        for index in range((request.known - 1) // self.block_tokens):
            blocks = self.cached.get(request.block_key(index, self.block_tokens))
            if blocks is None:
                break
            hit.append(next(iter(blocks)))
        return hit

    def cost_of(self, tokens: int, hit: list[Block]) -> int:
        """Free blocks that `tokens` tokens take, given a cached prefix."""
        lying_free = sum(1 for block in hit if block.holders == 0)
        return max(0, self.blocks_for(tokens) - len(hit)) + lying_free

    def hold(self, request: Request, hit: list[Block]) -> None:
        """Give a newly admitted request its cached prefix."""
        for block in hit:
            if block.holders == 0:
                del self.free_keyed[block]
            block.holders += 1
            request.blocks.append(block)
        request.num_keyed_blocks = len(hit)

    def grow(self, request: Request, tokens: int) -> None:
        """Take free blocks until the request has room for `tokens` tokens; the caller knows there are enough."""
        while len(request.blocks) < self.blocks_for(tokens):
            block = self._take_free_block()
            block.holders = 1
            request.blocks.append(block)

    def enter_keys(self, request: Request, tokens: int) -> None:
        """Make the full blocks of the request's first `tokens` tokens findable."""
        if not self.prefix_caching:
            return
        for index in range(request.num_keyed_blocks, tokens // self.block_tokens):
            block = request.blocks[index]
            block.key = request.block_key(index, self.block_tokens)
            self.cached.setdefault(block.key, {})[block] = None
            request.num_keyed_blocks = index + 1

    def free(self, request: Request) -> None:
        """Release the request's blocks, last block first."""
        for block in reversed(request.blocks):
            block.holders -= 1
            if block.holders > 0:
                continue
            if block.key is None:
                self.free_unkeyed.append(block)
            else:
                self.free_keyed[block] = None
        request.blocks = []
        request.num_keyed_blocks = 0

    def forget_all_keys(self) -> None:
        """Empty the prefix cache; every block is free when this is called."""
        for block in self.free_keyed:
            block.key = None
            self.free_unkeyed.append(block)
        self.free_keyed = {}
        self.cached = {}

    def _take_free_block(self) -> Block:
        if self.free_unkeyed:
            return self.free_unkeyed.pop()
        block = next(iter(self.free_keyed))
        del self.free_keyed[block]
        self._forget_key(block)
        return block

    def _forget_key(self, block: Block) -> None:
        assert block.key is not None
        same_key = self.cached[block.key]
        del same_key[block]
        if not same_key:
            del self.cached[block.key]
        block.key = None
