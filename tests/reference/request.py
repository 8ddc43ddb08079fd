"""One request and the pieces of work scheduled for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from .kv_cache import Block, Key

PENDING = "PENDING"
WAITING = "WAITING"
RUNNING = "RUNNING"
TRANSFERRING = "TRANSFERRING"
FINISHED = "FINISHED"
REJECTED = "REJECTED"
ABANDONED = "ABANDONED"
ENDED = (FINISHED, REJECTED, ABANDONED)

DECODE, FIRST_ADMISSION, RESUMED, PREFILL_CONTINUATION = range(4)


@dataclass(slots=True, eq=False)
class Request:
    """A row of the request table and its life."""

    id: int
    arrival_at_ps: int
    prompt_tokens: int
    output_tokens: int
    priority: int
    deadline_ps: int
    acceptance: float
    prefix_id: int
    prefix_tokens: int
    session_id: int

    status: str = PENDING
    emitted: int = 0
    computed: int = 0
    in_flight_tokens: int = 0
    prefill_target: int = 0
    decodes_from: int = 0
    """Items that begin with at least so many computed tokens are decode items."""
    fresh: bool = True
    transferred: bool = False
    first_token_at_ps: int = -1
    finished_at_ps: int = -1
    preemptions: int = 0
    token_times_ps: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    num_keyed_blocks: int = 0

    @property
    def known(self) -> int:
        """Tokens whose ids are known: the prompt and what has been emitted."""
        return self.prompt_tokens + self.emitted

    @property
    def prefilled(self) -> bool:
        """Whether all that was known at the admission is computed."""
        return self.computed >= self.prefill_target

    def block_key(self, index: int, block_tokens: int) -> Key:
        """The token stream that block `index` holds, and its place in it."""
        if self.prefix_id >= 0 and (index + 1) * block_tokens <= self.prefix_tokens:
            return ("prefix", self.prefix_id, index)
        if self.session_id >= 0:
            return ("session", self.session_id, index)
        return ("request", self.id, index)


class Item(NamedTuple):
    """A request's share of one iteration, as recorded runs show it."""

    request: int
    n_tokens: int
    computed_before: int
    kind: int
    drafts: int


@dataclass(slots=True, eq=False)
class Work:
    """An item with what the engine needs to complete it."""

    request: Request
    n_tokens: int
    computed_before: int
    kind: int
    drafts: int
    emits: bool = False

    def as_item(self) -> Item:
        return Item(self.request.id, self.n_tokens, self.computed_before, self.kind, self.drafts)


@dataclass(slots=True, eq=False)
class Iteration:
    """A batch in execution."""

    start_ps: int
    end_ps: int
    works: list[Work]
