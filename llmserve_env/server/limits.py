"""Rate limits: a token bucket per client and kind of call, in this process."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_CLIENTS = 10_000


class RateLimit:
    """A limit of calls per second and client, with a burst; 0 per second means no limit."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, max(burst, 1.0), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """0.0 if the client may call now, which counts as a call; otherwise the seconds until it may."""
        if self._per_s == 0.0:
            return 0.0
        now = self._clock()
        tokens, last = self._buckets.pop(client, (self._burst, now))
        tokens = min(tokens + (now - last) * self._per_s, self._burst)
        wait = 0.0 if tokens >= 1.0 else (1.0 - tokens) / self._per_s
        self._buckets[client] = (tokens - 1.0 if wait == 0.0 else tokens, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return wait


def retry_after(wait_s: float) -> str:
    """A value for the Retry-After header: whole seconds, at least one."""
    return str(max(math.ceil(wait_s), 1))
