"""Threads in which clients take turns: nobody's many calls keep another client waiting, and no turn is lost."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from llmserve_env.server.errors import TooManyWaitingError
from llmserve_env.server.lanes import Lanes

TIMEOUT_S = 60.0
PATIENT = 1_000


class Desk:
    """Calls that begin when the lanes let them, and end when the test does."""

    def __init__(self, threads: int, per_client: int, max_waiting: int = PATIENT) -> None:
        self.lanes = Lanes(threads, per_client, max_waiting, "desk")
        self.begun: queue.Queue[str] = queue.Queue()
        self._may_end: dict[str, threading.Event] = {}

    def call(self, client: str, name: str) -> asyncio.Task[str]:
        """Ask for a call; it has been queued or begun when the event loop has had a turn."""
        self._may_end[name] = threading.Event()
        return asyncio.ensure_future(self.lanes.run(client, self._work, name))

    def _work(self, name: str) -> str:
        self.begun.put(name)
        assert self._may_end[name].wait(TIMEOUT_S)
        return name

    async def next_begun(self) -> str:
        return await asyncio.to_thread(self.begun.get, True, TIMEOUT_S)

    def end(self, name: str) -> None:
        self._may_end[name].set()


def played(scene: Callable[[Desk], Coroutine[Any, Any, None]], desk: Desk) -> None:
    """Run a scene; the threads end with it."""

    async def run() -> None:
        try:
            await asyncio.wait_for(scene(desk), TIMEOUT_S)
        finally:
            for event in desk._may_end.values():
                event.set()
            await asyncio.to_thread(desk.lanes.shut_down, True)

    asyncio.run(run())


def test_a_client_with_many_calls_leaves_threads_to_the_others() -> None:
    async def scene(desk: Desk) -> None:
        greedy = [desk.call("greedy", f"greedy {n}") for n in range(10)]
        begun = {await desk.next_begun() for _ in range(2)}
        assert begun == {"greedy 0", "greedy 1"}
        modest = desk.call("modest", "modest")
        assert await desk.next_begun() == "modest"
        desk.end("modest")
        assert await modest == "modest"
        for n in range(10):
            desk.end(f"greedy {n}")
        assert await asyncio.gather(*greedy) == [f"greedy {n}" for n in range(10)]

    played(scene, Desk(threads=3, per_client=2))


def test_clients_that_wait_take_turns_whatever_the_length_of_their_queues() -> None:
    async def scene(desk: Desk) -> None:
        asked = [desk.call("first", "under way")]
        assert await desk.next_begun() == "under way"
        for client, count in (("a", 4), ("b", 2), ("c", 1)):
            asked += [desk.call(client, f"{client}{n}") for n in range(count)]
        await asyncio.sleep(0)
        order = ["under way"]
        for _ in asked[1:]:
            desk.end(order[-1])
            order.append(await desk.next_begun())
        assert order[1:] == ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]
        desk.end(order[-1])
        await asyncio.gather(*asked)

    played(scene, Desk(threads=1, per_client=1))


def test_a_client_with_too_many_waiting_calls_is_refused_and_others_are_not() -> None:
    async def scene(desk: Desk) -> None:
        running = desk.call("greedy", "running")
        assert await desk.next_begun() == "running"
        waiting = [desk.call("greedy", f"waiting {n}") for n in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyWaitingError, match="2 of your calls are waiting"):
            await desk.call("greedy", "too many")
        other = desk.call("other", "other")
        await asyncio.sleep(0)
        for name in ("running", "waiting 0", "other", "waiting 1"):
            desk.end(name)
        assert await asyncio.gather(running, other, *waiting) == ["running", "other", "waiting 0", "waiting 1"]
        assert "too many" not in desk.begun.queue

    played(scene, Desk(threads=1, per_client=1, max_waiting=2))


def test_a_call_that_is_given_up_while_it_waits_is_never_made_and_takes_no_place() -> None:
    async def scene(desk: Desk) -> None:
        running = desk.call("a", "running")
        assert await desk.next_begun() == "running"
        patient, *hasty = [desk.call("a", name) for name in ("patient", "hasty 0", "hasty 1")]
        await asyncio.sleep(0)
        for one in hasty:
            one.cancel()
        await asyncio.gather(*hasty, return_exceptions=True)
        later = [desk.call("a", f"later {n}") for n in range(2)]
        await asyncio.sleep(0)
        for name in ("running", "patient", "later 0", "later 1"):
            desk.end(name)
        await asyncio.gather(running, patient, *later)
        assert list(desk.begun.queue) == ["patient", "later 0", "later 1"]

    played(scene, Desk(threads=1, per_client=1, max_waiting=3))


def test_a_call_that_nobody_waits_for_any_longer_keeps_its_thread_until_it_ends() -> None:
    async def scene(desk: Desk) -> None:
        abandoned = desk.call("a", "abandoned")
        assert await desk.next_begun() == "abandoned"
        abandoned.cancel()
        await asyncio.gather(abandoned, return_exceptions=True)
        following = desk.call("a", "following")
        await asyncio.sleep(0)
        other = desk.call("b", "other")
        assert await desk.next_begun() == "other"
        desk.end("abandoned")
        assert await desk.next_begun() == "following"
        for name in ("following", "other"):
            desk.end(name)
        await asyncio.gather(following, other)

    played(scene, Desk(threads=2, per_client=1))


def test_a_call_that_fails_says_why_and_ends_its_turn() -> None:
    def fail() -> None:
        raise OSError("the disk is full")

    async def scene(desk: Desk) -> None:
        for _ in range(3):
            with pytest.raises(OSError, match="the disk is full"):
                await desk.lanes.run("a", fail)

    played(scene, Desk(threads=1, per_client=1))


class Office:
    """Many clients at a desk: what they have asked for, and what should be under way."""

    def __init__(self, desk: Desk, threads: int, per_client: int) -> None:
        self._desk, self._threads, self._per_client = desk, threads, per_client
        self._calls: dict[str, asyncio.Task[str]] = {}
        self._running: list[str] = []
        self._numbers = itertools.count()

    async def ask(self, client: str) -> None:
        name = f"{client}{next(self._numbers)}"
        self._calls[name] = self._desk.call(client, name)
        await self._settle()

    async def end(self, number: int, spins: int, is_another_given_up: bool) -> None:
        """One call ends; perhaps another one is given up a moment later, when its turn may be coming."""
        if not self._running:
            return
        name = self._running.pop(number % len(self._running))
        self._desk.end(name)
        waiting = [other for other in self._calls if other != name and other not in self._running]
        if waiting and is_another_given_up:
            await self._give_up(waiting[number % len(waiting)], spins)
        await asyncio.gather(self._calls.pop(name), return_exceptions=True)
        await self._settle()

    async def _give_up(self, name: str, spins: int) -> None:
        for _ in range(spins):
            await asyncio.sleep(0)
        # If it has begun already, it ends by itself.
        self._desk.end(name)
        self._calls[name].cancel()
        await asyncio.gather(self._calls.pop(name), return_exceptions=True)

    async def _settle(self) -> None:
        """As many calls are under way as the limits allow, and no more."""
        asked = Counter(name[0] for name in self._calls)
        due = min(self._threads, sum(min(count, self._per_client) for count in asked.values()))
        while len(self._running) < due:
            name = await self._desk.next_begun()
            if name in self._calls:
                self._running.append(name)
        assert max(Counter(name[0] for name in self._running).values(), default=0) <= self._per_client
        assert len(self._running) == due


@examples(max_examples=150)
@given(
    moves=st.lists(
        st.sampled_from("abc") | st.tuples(st.integers(0, 9), st.integers(0, 6), st.booleans()),
        min_size=20,
        max_size=60,
    ),
    threads=st.integers(1, 4),
    per_client=st.integers(1, 3),
)
def test_threads_are_never_idle_while_a_client_with_less_than_its_share_waits(
    moves: list[str | tuple[int, int, bool]], threads: int, per_client: int
) -> None:
    async def scene(desk: Desk) -> None:
        office = Office(desk, threads, per_client)
        for move in moves:
            await (office.ask(move) if isinstance(move, str) else office.end(*move))

    played(scene, Desk(threads, per_client))
