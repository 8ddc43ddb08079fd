"""The page at /web, the addresses that lead to it, and the description of the interface at /docs.

It stands on Starlette alone, so that it can be served before the rest of the application is loaded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

STATIC = Path(__file__).parent.parent / "static"
OWN_AGENTS = "own_agents.md"
OWN_AGENTS_FOLDERS = (STATIC, STATIC.parents[2] / "docs")
"""Where that document lies: in an installed package, and in a checkout."""
HEADERS = {"Cache-Control": "no-cache"}
STATIC_PATH = "/web/static"
METHODS = ["GET", "HEAD"]


async def dashboard(_request: Request) -> FileResponse:
    """The dashboard."""
    return FileResponse(STATIC / "index.html", headers=HEADERS)


async def reference(_request: Request) -> FileResponse:
    """The page that describes the HTTP interface."""
    return FileResponse(STATIC / "reference.html", headers=HEADERS)


async def own_agents(_request: Request) -> FileResponse:
    """The document that the page names to those who bring an agent, as plain text, which every browser shows."""
    found = next(path for folder in OWN_AGENTS_FOLDERS if (path := folder / OWN_AGENTS).exists())
    return FileResponse(found, headers=HEADERS, media_type="text/plain")


async def to_dashboard(_request: Request) -> RedirectResponse:
    """The way to it."""
    return RedirectResponse("/web")


PAGES: dict[str, Callable[[Request], Awaitable[Response]]] = {
    "/web": dashboard,
    "/web/": dashboard,
    "/docs": reference,
    "/docs/own_agents.md": own_agents,
    "/": to_dashboard,
    "/demo": to_dashboard,
}


def static_files() -> StaticFiles:
    """The page's scripts and styles."""
    return StaticFiles(directory=STATIC)
