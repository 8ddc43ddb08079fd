"""OpenEnv's built-in page, as a tab of /web. All its visitors share one environment; that is OpenEnv's design."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI
from openenv.core.env_server.web_interface import create_web_interface_app
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server import errors
from llmserve_env.server.llmserve_environment import NAME, LLMServeEnvironment
from llmserve_env.server.service import Service

CONSOLE_PATH = "/openenv"
MAX_ENVIRONMENTS = 16
API = "/web/gradio_api/"
PAGES = frozenset(
    {
        "/",
        "/web",
        "/web/",
        "/web/config",
        "/web/theme.css",
        "/web/favicon.ico",
        "/web/manifest.json",
        "/web/robots.txt",
        *(f"{API}{name}" for name in ("info", "app_id", "startup-events", "queue/data", "theme.css")),
    }
)
FOLDERS = ("/web/assets/", "/web/static/", "/web/svelte/", f"{API}heartbeat/")
JOIN = f"{API}queue/join"
MAX_VISITORS = 500
"""Gradio would remember ten thousand, each with a copy of the page's values."""
MAX_UNREAD = 16
"""Answers kept for a visitor who reads none; Gradio would keep them all."""
ACTIONS = frozenset(f"{API}{name}" for name in ("queue/join", "cancel", "reset"))


def is_needed(method: str, path: str) -> bool:
    """Whether the page needs this request. Gradio also offers uploads, files, proxies and streams to anybody."""
    if method in ("GET", "HEAD"):
        return path in PAGES or path.startswith(FOLDERS)
    return method == "POST" and path in ACTIONS


def console_app() -> FastAPI:
    """OpenEnv's page as an application."""
    console: FastAPI = create_web_interface_app(
        LLMServeEnvironment,
        ServeAction,
        ServeObservation,
        env_name=NAME,
        state_cls=ServeState,
        max_concurrent_envs=MAX_ENVIRONMENTS,
    )
    errors.install(console)
    return console


def pages_of(console: FastAPI) -> list[Any]:
    """Gradio's pages within OpenEnv's, which remember no more visitors than are allowed."""
    mounted: list[Any] = [getattr(route, "app", None) for route in console.routes]
    pages = [app.get_blocks() for app in mounted if hasattr(app, "get_blocks")]
    for page in pages:
        page.state_holder.capacity = MAX_VISITORS
        page._queue.pending_messages_per_session.max_size = MAX_VISITORS
    return pages


def forget_unread(page: Any) -> None:
    """Drop the oldest answers that nobody has fetched."""
    queue = page._queue
    for unread in list(queue.pending_messages_per_session.values()):
        while unread.qsize() > MAX_UNREAD:
            unread.get_nowait()
    for visitor in queue.pending_event_ids_session.keys() - queue.pending_messages_per_session.keys():
        del queue.pending_event_ids_session[visitor]


class Console:
    """The page, built when its first visitor comes: it takes seconds that the start of the server should not wait for.

    Starlette does not run the lifespan of a mounted application, so a task here does, from the first visit to `stop`.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lifetime: asyncio.Task[None] | None = None
        self._built: asyncio.Future[FastAPI] | None = None
        self.pages: list[Any] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] == "http" and not is_needed(scope["method"], path):
            await JSONResponse({"detail": "OpenEnv's page does not need this"}, 404)(scope, receive, send)
            return
        await self._service.until_ready()
        if self._built is None:
            self._built = asyncio.get_running_loop().create_future()
            self._lifetime = asyncio.create_task(self._live(self._built))
        console = await asyncio.shield(self._built)
        if path == JOIN:
            for page in self.pages:
                forget_unread(page)
        await console(scope, receive, send)

    async def _live(self, built: asyncio.Future[FastAPI]) -> None:
        try:
            console = await asyncio.to_thread(console_app)
            async with console.router.lifespan_context(console):
                self.pages = pages_of(console)
                built.set_result(console)
                await asyncio.Event().wait()
        finally:
            # Visitors must not wait for a page that could not be built.
            built.cancel()

    async def stop(self) -> None:
        """End the page's lifespan, if it has begun."""
        if self._lifetime is not None:
            self._lifetime.cancel()
            await asyncio.gather(self._lifetime, return_exceptions=True)
        self._lifetime = self._built = None
