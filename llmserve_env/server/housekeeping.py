"""Work that is repeated for as long as the server runs, whatever goes wrong with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("llmserve.server")


async def repeat(
    name: str, interval_s: float, work: Callable[[], Awaitable[None]], on_error: Callable[[str], None]
) -> None:
    """Do the work every so often. A failure is logged when it begins and when it is over, and ends nothing."""
    is_failing = False
    while True:
        await asyncio.sleep(interval_s)
        try:
            await work()
        except Exception as error:
            on_error(name)
            if not is_failing:
                log.error("%s fails, and is tried again every %g s: %s", name, interval_s, error)
            is_failing = True
        else:
            if is_failing:
                log.info("%s works again", name)
            is_failing = False
