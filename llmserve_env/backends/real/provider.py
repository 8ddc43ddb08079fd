"""The interface of a live engine: apply knobs, report gauges, stream answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llmserve_env.backends.real.limiter import Limiter
from llmserve_env.errors import LLMServeError


class StreamError(LLMServeError):
    """One request failed; others may go on. Failures are counted by the message, which is a few words."""


class ImplausibleAnswerError(StreamError):
    """The counts of an answer cannot be true; it is billed at the worst case that was reserved for it."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request that is due; instants are of `time.monotonic`."""

    index: int
    arrival_at_s: float
    prompt_tokens: int
    output_tokens: int
    priority: int
    slo_s: float
    patience_s: float
    prefix_id: int = -1
    prefix_tokens: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that arrived together; the last piece of a stream may carry its usage instead."""

    tokens: int
    used_prompt_tokens: int | None = None
    used_completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the knobs."""

    in_force: dict[str, Any]
    """Values in the engine, for the knobs that it can change."""
    unsupported: dict[str, str] = field(default_factory=dict)
    """Knob -> why it cannot be changed."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """An engine's own figures at the end of a window; counters run from its start. None: not reported."""

    queue_depth: int
    active_requests: int
    kv_cache_occupancy: float | None = None
    preemptions: int | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    iterations: int | None = None
    busy_s: float | None = None
    reserved_kv_fraction: float | None = None
    """Share of the KV pool that is in service."""


class Provider(Protocol):
    """One engine, for one episode at a time. `stream` runs in the event loop of the load; the rest outside it."""

    name: str
    is_metered: bool
    """Whether its tokens are billed, instead of the time of GPUs."""
    limiter: Limiter | None
    """Holds the batch cap on the client's side; None where the engine does so itself."""
    unsupported: Mapping[str, str]
    """Knobs that this engine never changes, and why."""

    def check(self) -> None:
        """Raise a ProviderError unless the engine answers and accepts the credentials."""

    def apply(self, knobs: Mapping[str, Any]) -> Applied:
        """Change the knobs that can be changed, from the next iteration on."""

    def gauges(self) -> Gauges:
        """Read the engine's figures."""

    def stream(self, call: Call) -> AsyncIterator[Piece]:
        """Send a request; ProviderError if it cannot go on, StreamError if only this request failed."""

    async def aclose(self) -> None:
        """Close all connections."""
