"""Requests played in real time: each is sent when it is due, and every token is stamped as it arrives.

The load runs in an event loop in a separate thread, so a slow agent does not delay it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from llmserve_env.backends.real.provider import Call, ImplausibleAnswerError, Provider, StreamError
from llmserve_env.backends.real.spending import Budget
from llmserve_env.errors import ProviderError

LOST_IN_A_ROW = 5
"""Consecutive requests without a connection after which the engine counts as dead."""
STOP_TIMEOUT_S = 10.0
MAX_SURPLUS = 4
"""An API may send a token in several pieces, but not in more than this on average."""


class Happening(Enum):
    """What can happen to a request."""

    TOKENS = auto()
    FINISHED = auto()
    FAILED = auto()
    ABANDONED = auto()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a request, and when (`time.monotonic`)."""

    what: Happening
    index: int
    at_s: float
    tokens: int = 0


@dataclass(slots=True)
class _Client:
    """The client of a request, who leaves if the first token takes too long."""

    request: asyncio.Task[None] | None
    is_served: bool = False
    has_left: bool = False

    def lose_patience(self) -> None:
        if not self.is_served and self.request is not None:
            self.has_left = True
            self.request.cancel()


class LoadPlayer:
    """Plays calls until it is stopped. `dead` is set, with a reason, when the engine turns out to be gone."""

    def __init__(self, provider: Provider, budget: Budget) -> None:
        self._provider, self.budget = provider, budget
        self._events: deque[Event] = deque()
        self._later: list[Event] = []
        self.sent_at_s: dict[int, float] = {}
        self.failures: Counter[str] = Counter()
        self.dead: ProviderError | None = None
        self._wake = threading.Event()
        self._stopping = threading.Lock()
        self._lost_in_a_row = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="llmserve-load", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        """Requests that are not over yet."""
        return len(self._tasks)

    def play(self, calls: Sequence[Call]) -> None:
        """Take over these requests; returns at once."""
        if self._loop.is_closed():
            raise ProviderError("the episode's load has been stopped; reset to start another")
        self._loop.call_soon_threadsafe(self._begin, calls)

    def wait_until(self, at_s: float) -> None:
        """Sleep until then; returns earlier if the engine dies or the budget is spent."""
        self._wake.wait(max(at_s - time.monotonic(), 0.0))

    def take_events(self, until_s: float) -> list[Event]:
        """Events up to then that were not taken before, in order of time."""
        taken = self._later
        while self._events:
            taken.append(self._events.popleft())
        self._later = [event for event in taken if event.at_s > until_s]
        return sorted((event for event in taken if event.at_s <= until_s), key=lambda event: event.at_s)

    def stop(self) -> None:
        """Cancel what is under way and end the thread."""
        with self._stopping:
            if not self._thread.is_alive():
                return
            self._stop()

    def _stop(self) -> None:
        self._wake.set()
        ended = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        try:
            ended.result(STOP_TIMEOUT_S)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_TIMEOUT_S)
            self._loop.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._provider.aclose()

    def _begin(self, calls: Sequence[Call]) -> None:
        for call in calls:
            task = self._loop.create_task(self._play(call))
            self._tasks.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._die(ProviderError(f"playing a request raised an unexpected error: {task.exception()!r}"))

    def _die(self, error: ProviderError) -> None:
        self.dead = self.dead or error
        self._wake.set()

    def _happened(self, what: Happening, call: Call, tokens: int = 0) -> None:
        self._events.append(Event(what, call.index, time.monotonic(), tokens))

    async def _play(self, call: Call) -> None:
        await asyncio.sleep(call.arrival_at_s - time.monotonic())
        client = _Client(asyncio.current_task())
        patience = self._loop.call_later(call.arrival_at_s + call.patience_s - time.monotonic(), client.lose_patience)
        try:
            if self._provider.limiter is None:
                await self._send(call, client)
            else:
                async with self._provider.limiter.turn(call.priority):
                    await self._send(call, client)
        except asyncio.CancelledError:
            if not client.has_left:
                raise
            self._happened(Happening.ABANDONED, call)
        finally:
            patience.cancel()

    async def _send(self, call: Call, client: _Client) -> None:
        reserved = (call.prompt_tokens, call.output_tokens)
        if self.dead is not None or not self.budget.reserve(*reserved):
            self._happened(Happening.FAILED, call)
            self.failures["not sent: " + (self.budget.reached or str(self.dead))] += 1
            self._wake.set()
            return
        self.sent_at_s[call.index] = time.monotonic()
        used = [0, 0]
        try:
            await self._listen(call, client, used)
            self._lost_in_a_row = 0
            self._happened(Happening.FINISHED, call)
        except asyncio.CancelledError:
            # The provider may bill what was sent, even if the client stops listening.
            used[0] = used[0] or call.prompt_tokens
            raise
        except StreamError as error:
            if isinstance(error, ImplausibleAnswerError):
                used = list(reserved)
            self._fail(call, str(error))
        except ProviderError as error:
            self._fail(call, "refused")
            self._die(error)
        finally:
            # A prompt that produced tokens was processed, even if its usage was never reported.
            self.budget.settle(reserved, (used[0] or (call.prompt_tokens if used[1] else 0), used[1]))

    async def _listen(self, call: Call, client: _Client, used: list[int]) -> None:
        """Take the pieces of an answer; `used` is [prompt, completion] tokens so far, also if it ends with an error."""
        async with contextlib.aclosing(self._provider.stream(call)) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                fresh = piece.tokens
                if piece.used_completion_tokens is not None:
                    fresh = piece.used_completion_tokens - used[1]
                used[0] = piece.used_prompt_tokens or used[0]
                if used[1] + fresh > MAX_SURPLUS * call.output_tokens:
                    raise ImplausibleAnswerError("more tokens than asked for")
                if fresh > 0:
                    used[1] += fresh
                    self._happened(Happening.TOKENS, call, fresh)
                    client.is_served = True
        if used[1] == 0:
            raise StreamError("the stream was empty")

    def _fail(self, call: Call, reason: str) -> None:
        # The event comes first, so that a reader of the counter finds every counted failure among the events.
        self._happened(Happening.FAILED, call)
        self.failures[reason] += 1
        self._lost_in_a_row = self._lost_in_a_row + 1 if reason == "no connection" else 0
        if self._lost_in_a_row >= LOST_IN_A_ROW:
            self._die(ProviderError(f"the engine is gone: {LOST_IN_A_ROW} requests in a row found no connection"))
