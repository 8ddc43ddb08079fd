"""The limit on requests in flight, changed while others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llmserve_env.backends.real.limiter import Limiter


async def settle() -> None:
    """Let everybody go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)


class Party:
    """Guests who enter when they may, and leave when told."""

    def __init__(self, limit: int) -> None:
        self.limiter = Limiter(limit)
        self.entered: list[str] = []
        self.leave = asyncio.Event()
        self.guests: list[asyncio.Task[None]] = []

    async def invite(self, name: str, priority: int = 0) -> asyncio.Task[None]:
        async def guest() -> None:
            async with self.limiter.turn(priority):
                self.entered.append(name)
                await self.leave.wait()

        self.guests.append(asyncio.create_task(guest()))
        await settle()
        return self.guests[-1]

    async def end(self) -> None:
        self.leave.set()
        await asyncio.gather(*self.guests, return_exceptions=True)


def run(scene: Callable[[Party], object], limit: int = 1) -> Party:
    async def play() -> Party:
        party = Party(limit)
        await scene(party)  # type: ignore[misc]
        await party.end()
        return party

    return asyncio.run(play())


def test_guests_enter_in_order_of_arrival() -> None:
    async def scene(party: Party) -> None:
        for name, priority in (("a", 1), ("b", 0), ("c", 1)):
            await party.invite(name, priority)
        assert (party.limiter.num_running, party.limiter.num_waiting) == (1, 2)

    assert run(scene).entered == ["a", "b", "c"]


def test_urgent_guests_overtake_when_priorities_are_on() -> None:
    async def scene(party: Party) -> None:
        party.limiter.configure(1, by_priority=True)
        for name, priority in (("a", 1), ("b", 1), ("c", 0)):
            await party.invite(name, priority)

    assert run(scene).entered == ["a", "c", "b"]


def test_a_higher_limit_lets_waiting_guests_in_and_a_lower_one_evicts_nobody() -> None:
    async def scene(party: Party) -> None:
        for name in "abcd":
            await party.invite(name)
        party.limiter.configure(3, by_priority=False)
        await settle()
        assert party.limiter.num_running == 3
        party.limiter.configure(1, by_priority=False)
        await settle()
        assert (party.limiter.num_running, party.limiter.num_waiting) == (3, 1)

    assert run(scene).entered == list("abcd")


def test_a_guest_who_gives_up_leaves_the_queue_and_holds_no_place() -> None:
    async def scene(party: Party) -> None:
        inside, waiting = await party.invite("a"), await party.invite("b")
        waiting.cancel()
        await settle()
        assert (party.limiter.num_running, party.limiter.num_waiting) == (1, 0)
        await party.invite("c")
        inside.cancel()
        await settle()
        assert party.entered == ["a", "c"]

    assert run(scene).limiter.num_running == 0


def test_a_guest_who_gives_up_as_it_is_let_in_gives_its_place_to_the_next() -> None:
    async def scene(party: Party) -> None:
        await party.invite("a")
        waiting = await party.invite("b")
        await party.invite("c")
        party.limiter.configure(2, by_priority=False)
        waiting.cancel()
        await settle()
        assert party.entered == ["a", "c"]

    assert run(scene).limiter.num_running == 0
