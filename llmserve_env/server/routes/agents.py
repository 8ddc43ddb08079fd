"""Agents that play on the server, for the page and for clients that want to watch one."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from llmserve_env.server import scoring
from llmserve_env.server.routes.control import PROBLEMS, client_of
from llmserve_env.server.schemas import AgentInfo, PlayedStep, PlayRequest, PlayResponse, TaskId
from llmserve_env.server.service import Service
from llmserve_env.tasks.catalog import BENCHMARK


def agent_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router = APIRouter(tags=["Agents"])

    @router.get("/agents", responses=PROBLEMS, response_model=list[AgentInfo], summary="Agents, and who can play here")
    async def agents(request: Request, task_id: Annotated[TaskId, Query()] = BENCHMARK[0]) -> list[AgentInfo]:
        return await service.slow(client_of(request), scoring.available_agents, str(task_id))

    @router.post("/play", response_model=PlayResponse, responses=PROBLEMS, summary="Let an agent play some steps")
    async def play(request: Request, asked: PlayRequest) -> PlayResponse:
        """The agent's actions are journaled in the session like those of any client."""
        client = client_of(request)
        until_s = time.monotonic() + service.settings.expensive_timeout_s

        def run() -> tuple[str, list[dict[str, Any]]]:
            sessions, name, steps = service.sessions, asked.agent, asked.steps
            session = sessions.current(asked.session_id, client)
            return session.session_id, scoring.play_steps(sessions, session, name, steps, client, until_s)

        session_id, played = await service.slow(client, run)
        return PlayResponse(
            session_id=session_id, agent=asked.agent, steps=[PlayedStep.model_validate(one) for one in played]
        )

    return router
