"""OpenEnv's web interface at its standard paths: /web/reset, /web/step, /web/state and /web/metadata.

In OpenEnv all visitors share one environment here. On this server each has a separate session, like any client that
sends no id.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request, Response

from llmserve_env.server.llmserve_environment import environment_metadata
from llmserve_env.server.routes.control import PROBLEMS, client_of, start_session, state_for, take_step
from llmserve_env.server.schemas import EpisodeResponse, ResetRequest, StateResponse, StepRequest
from llmserve_env.server.service import Service


def web_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router = APIRouter(prefix="/web", tags=["Web Interface"])

    @router.post("/reset", response_model=EpisodeResponse, responses=PROBLEMS, summary="As /reset")
    async def web_reset(request: Request, asked: Annotated[ResetRequest | None, Body()] = None) -> Response:
        return await start_session(service, request, asked or ResetRequest())

    @router.post("/step", response_model=EpisodeResponse, responses=PROBLEMS, summary="As /step")
    async def web_step(request: Request, asked: StepRequest) -> Response:
        return await take_step(service, asked, client_of(request))

    @router.get("/state", response_model=StateResponse, responses=PROBLEMS, summary="As /state")
    async def web_state(request: Request) -> StateResponse:
        return await state_for(service, client_of(request), None)

    @router.get("/metadata", summary="Name, description and README")
    async def web_metadata() -> dict[str, Any]:
        found: dict[str, Any] = environment_metadata().model_dump()
        return found

    return router
