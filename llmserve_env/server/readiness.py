"""/ready: whether the next request will be served. `/health` only says that the process is alive."""

from __future__ import annotations

import asyncio
import time

from llmserve_env.server.connections import guard
from llmserve_env.server.errors import StoreUnavailableError
from llmserve_env.server.process import resident_bytes
from llmserve_env.server.schemas import ReadyCheck, ReadyResponse
from llmserve_env.server.service import BYTES_PER_MB, Service

CACHED_S = 1.0
"""The store is asked at most once in this time, because anybody may call /ready as often as they like."""
STORE_TIMEOUT_S = 2.0


class Readiness:
    """The checks of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store, self._asked_at_s = ReadyCheck(ok=False, detail="not asked yet"), -CACHED_S
        self._asking = asyncio.Lock()

    async def check(self) -> ReadyResponse:
        """All checks, as they are now; /metrics shows what they find."""
        service, settings = self._service, self._service.settings
        resident_mb = resident_bytes() / BYTES_PER_MB
        checks = {
            "kernels": ReadyCheck(ok=service.is_ready, detail="compiled" if service.is_ready else "being compiled"),
            "store": await self._check_store(),
            "memory": ReadyCheck(
                ok=resident_mb < settings.memory_mb, detail=f"{resident_mb:.0f} of {settings.memory_mb} MB"
            ),
            "connections": _room(guard.num_open, guard.max_connections),
            "websockets": _room(service.num_websockets(), settings.max_websockets),
        }
        found = ReadyResponse(ready=all(check.ok for check in checks.values()), checks=checks)
        service.operations.ready.set(found.ready)
        return found

    async def _check_store(self) -> ReadyCheck:
        async with self._asking:
            if time.monotonic() - self._asked_at_s >= CACHED_S:
                self._store = await self._ask_store()
                self._asked_at_s = time.monotonic()
        return self._store

    async def _ask_store(self) -> ReadyCheck:
        store = self._service.sessions.store
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await self._service.in_thread(None, store.probe)
                self._service.operations.store_bytes.set(await self._service.in_thread(None, store.num_bytes))
        except TimeoutError:
            return ReadyCheck(ok=False, detail=f"no answer within {STORE_TIMEOUT_S:g} s")
        except StoreUnavailableError as error:
            return ReadyCheck(ok=False, detail=str(error))
        return ReadyCheck(ok=True, detail="reachable and writable")


def _room(used: int, limit: int) -> ReadyCheck:
    return ReadyCheck(ok=used < limit, detail=f"{used} of {limit}")
