"""Rate limits: a token bucket per address and kind of call, in this process."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Message, Receive

    from llmserve_env.server.settings import Settings

MAX_CLIENTS = 10_000
METRICS = "/metrics"
EXPENSIVE = frozenset({"/grader", "/baseline"})
STEPS = frozenset({"/step", "/web/step"})
PLAYS = frozenset({"/play", "/mcp", "/agents", "/schema", "/info", "/openenv/web/gradio_api/queue/join"})
"""Paths of requests that take milliseconds."""
PROBES = frozenset({"/health", "/ready"})
"""Paths that load balancers ask. They are always answered, but late if there are too many requests."""


class RateLimit:
    """A limit of calls per second and address, with a burst; 0 per second means no limit."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, max(burst, 1.0), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """0.0 if the client may call now, which counts as a call; otherwise the seconds until it may."""
        if self._per_s == 0.0:
            return 0.0
        now = self._clock()
        tokens, last = self._buckets.pop(address, (self._burst, now))
        tokens = min(tokens + (now - last) * self._per_s, self._burst)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._per_s
        self._buckets[address] = (tokens - 1.0 if wait == 0.0 else tokens, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return wait

    async def turn(self, address: str) -> None:
        """Wait until the client may call, and in any case until others have had their turn."""
        await asyncio.sleep(0)
        while (wait_s := self.wait_s(address)) > 0.0:
            await asyncio.sleep(wait_s)

    def paced(self, receive: Receive, address: str) -> Receive:
        """A WebSocket's `receive` that hands over each message when the client has its turn."""

        async def receive_in_turn() -> Message:
            message = await receive()
            if message["type"] == "websocket.receive":
                await self.turn(address)
            return message

        return receive_in_turn


class Turns:
    """Limits the requests that an address may begin in a turn of the event loop, so that no client delays others."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._begun: Counter[str] = Counter()

    async def wait(self, address: str) -> None:
        """Wait until the client may begin a request."""
        while self._begun[address] >= self._at_once:
            await asyncio.sleep(0)
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._begun.clear)
        self._begun[address] += 1


class Rates:
    """The limits of all kinds of calls, for HTTP and WebSockets together."""

    def __init__(self, settings: Settings) -> None:
        self.steps = RateLimit(settings.steps_per_s, 2.0 * settings.steps_per_s)
        self.others = RateLimit(settings.requests_per_s, 2.0 * settings.requests_per_s)
        self.plays = RateLimit(settings.plays_per_s, 2.0 * settings.plays_per_s)
        self._probes = RateLimit(settings.requests_per_s, 2.0 * settings.requests_per_s)
        self._metrics = RateLimit(settings.plays_per_s, 2.0 * settings.plays_per_s)
        self._expensive = RateLimit(settings.expensive_per_min / 60.0, settings.expensive_per_min / 2.0)

    def for_path(self, path: str) -> RateLimit:
        """The limit of a request."""
        if path in PROBES:
            return self._probes
        if path == METRICS:
            return self._metrics
        if path in EXPENSIVE:
            return self._expensive
        if path in STEPS:
            return self.steps
        return self.plays if path in PLAYS else self.others


def retry_after(wait_s: float) -> str:
    """A value for the Retry-After header: whole seconds, at least one."""
    return str(max(math.ceil(wait_s), 1))
