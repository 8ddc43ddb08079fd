"""Work that is repeated for as long as the server runs, whatever goes wrong with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from llmserve_env.errors import LLMServeError

log = logging.getLogger("llmserve.server")


async def repeat(
    name: str, interval_s: float, work: Callable[[], Awaitable[None]], on_error: Callable[[str], None]
) -> None:
    """Do the work at an interval. Each kind of failure is logged once, and so is the recovery from it."""
    failures: set[type[Exception]] = set()
    while True:
        await asyncio.sleep(interval_s)
        try:
            await work()
        except Exception as error:
            # Without this work the server fills up or forgets nothing, so not even a bug may end it.
            on_error(name)
            if type(error) not in failures:
                is_bug = not isinstance(error, LLMServeError)
                log.error("%s fails, and is tried again every %g s: %s", name, interval_s, error, exc_info=is_bug)
            failures.add(type(error))
        else:
            if failures:
                log.info("%s works again", name)
            failures.clear()
