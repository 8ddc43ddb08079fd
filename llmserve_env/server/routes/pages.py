"""The page at /web, and the ways that lead there."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, RedirectResponse

STATIC = Path(__file__).parent.parent / "static"
HEADERS = {"Cache-Control": "no-cache"}


def page_routes() -> APIRouter:
    """The dashboard; its script and style are mounted beside it."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/web", methods=["GET", "HEAD"])
    @router.api_route("/web/", methods=["GET", "HEAD"])
    async def dashboard() -> FileResponse:
        return FileResponse(STATIC / "index.html", headers=HEADERS)

    @router.api_route("/", methods=["GET", "HEAD"])
    @router.api_route("/demo", methods=["GET", "HEAD"])
    async def to_dashboard() -> RedirectResponse:
        return RedirectResponse("/web")

    return router
