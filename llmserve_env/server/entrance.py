"""What answers requests from the first moment of a server process.

OpenEnv and the simulator take seconds to import. Meanwhile `/health` and the page are answered here, WebSockets are
accepted, and every other request waits. From then on, the application answers everything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match, Mount, Route

from llmserve_env.errors import LLMServeError
from llmserve_env.server.background import in_background
from llmserve_env.server.middleware import WORKER_HEADER
from llmserve_env.server.routes.pages import METHODS, PAGES, STATIC_PATH, static_files

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

log = logging.getLogger("llmserve.server")
SOCKET_PATH = "/ws"


async def _accepted(receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Accept a WebSocket before the application can: clients wait longer for an answer than for a connection.

    The application still sees the connection begin, and its own acceptance is not sent again.
    """
    beginning = [await receive()]
    await send({"type": "websocket.accept"})

    async def receive_again() -> Message:
        return beginning.pop() if beginning else await receive()

    async def send_the_rest(message: Message) -> None:
        if message["type"] != "websocket.accept":
            await send(message)

    return receive_again, send_the_rest


def _is_for_operator(error: Exception) -> bool:
    """Whether the message of an error says what is wrong with a setting; any other error is a bug."""
    # Imported late: loading these takes long, and by now the application has done it.
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    return isinstance(error, (LLMServeError, ValidationError, SettingsError))


class Entrance:
    """An ASGI application in front of one that takes long to load; `prepare` is called before the first connection."""

    def __init__(self, load: Callable[[], Starlette], prepare: Callable[[], None] = lambda: None) -> None:
        self._load, self._prepare = load, prepare
        self._application: Starlette | None = None
        self._loaded = asyncio.Event()
        self._stopping = asyncio.Event()
        self._started_at_s = time.monotonic()
        pages = [Route(path, page, methods=METHODS) for path, page in PAGES.items()]
        early = [Route("/health", self._health), Route("/ready", self._ready), *pages]
        self._early = Starlette(routes=[*early, Mount(STATIC_PATH, static_files())])
        self.stop: Callable[[], None] = lambda: signal.raise_signal(signal.SIGTERM)
        """Called when the application cannot be loaded; by default it stops the process as an operator would."""
        self.has_failed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if self._application is None:
            if any(route.matches(scope)[0] is Match.FULL for route in self._early.routes):
                await self._early(scope, receive, send)
                return
            if scope["type"] == "websocket" and scope["path"] == SOCKET_PATH:
                receive, send = await _accepted(receive, send)
            await self._loaded.wait()
        assert self._application is not None
        await self._application(scope, receive, send)

    async def _health(self, _request: Request) -> JSONResponse:
        uptime_s = round(time.monotonic() - self._started_at_s, 3)
        return JSONResponse(
            {
                "status": "healthy",
                "ready": False,
                "warming_up": True,
                "progress": 0.0,
                "active_sessions": 0,
                "stored_sessions": 0,
                "uptime_s": uptime_s,
                "uptime_seconds": uptime_s,
            },
            headers={WORKER_HEADER: str(os.getpid())},
        )

    async def _ready(self, _request: Request) -> JSONResponse:
        checks = {"application": {"ok": False, "detail": "still loading"}}
        return JSONResponse({"ready": False, "checks": checks}, 503)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._prepare()
        running = asyncio.create_task(self._run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._stopping.set()
        if self._application is None:
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await send({"type": "lifespan.shutdown.complete"})

    async def _run(self) -> None:
        """Load the application and keep it until the server stops; without it there is no reason to go on."""
        try:
            application = await in_background(self._load)
            async with application.router.lifespan_context(application):
                self._application = application
                self._loaded.set()
                await self._stopping.wait()
        except Exception as error:
            # Nobody awaits this task before the end, so whatever goes wrong is logged here and stops the process.
            what = "stop cleanly" if self._loaded.is_set() else "start"
            log.error("the server cannot %s: %s", what, error, exc_info=not _is_for_operator(error))
            self.has_failed = True
            self.stop()
