"""From the engine's loop to the caller's: nothing is lost, nothing overtakes, and few wake-ups carry many tokens."""

from __future__ import annotations

import asyncio
import threading

from llmserve_env.backends.real.in_process import Handover

COUNT, STREAMS = 2_000, 4


def test_everything_arrives_in_order() -> None:
    async def listen() -> list[list[int]]:
        handover = Handover(asyncio.get_running_loop())
        queues: list[asyncio.Queue[int | None]] = [asyncio.Queue() for _ in range(STREAMS)]

        def send() -> None:
            for i in range(COUNT):
                for queue in queues:
                    handover.put(queue, i)
            for queue in queues:
                handover.put(queue, None)

        async def all_of(queue: asyncio.Queue[int | None]) -> list[int]:
            found: list[int] = []
            while (item := await queue.get()) is not None:
                found.append(item)
            return found

        engine = threading.Thread(target=send)
        engine.start()
        found = await asyncio.gather(*map(all_of, queues))
        engine.join()
        return list(found)

    assert asyncio.run(listen()) == [list(range(COUNT))] * STREAMS


def test_a_caller_that_is_gone_is_no_error() -> None:
    loop = asyncio.new_event_loop()
    queue: asyncio.Queue[int] = asyncio.Queue()
    handover = Handover(loop)
    loop.close()
    handover.put(queue, 1)
    assert queue.empty()
