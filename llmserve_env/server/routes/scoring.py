"""/grader and /log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request

from llmserve_env.env.episode import ActionLog
from llmserve_env.errors import ConfigError
from llmserve_env.models import EpisodeLog, GradeReport
from llmserve_env.server import scoring
from llmserve_env.server.grading_schemas import GraderRequest
from llmserve_env.server.logs import log_from, wire_log
from llmserve_env.server.routes.control import PROBLEMS, client_of
from llmserve_env.server.schemas import SessionId
from llmserve_env.server.service import Service


def scoring_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router = APIRouter(tags=["Scoring"])

    @router.post("/grader", response_model=GradeReport, responses=PROBLEMS, summary="Grade an episode")
    async def grader(request: Request, asked: Annotated[GraderRequest | None, Body()] = None) -> GradeReport:
        """Grade a session, or a log: it is replayed, so only what the actions did counts."""
        asked, client = asked or GraderRequest(), client_of(request)
        if asked.episode_log is not None:
            log = log_from(asked, service.settings.max_log_steps)
            return await service.slow(client, scoring.grade_log, log)
        if asked.task_id is not None:
            raise ConfigError("task_id belongs to an episode_log; give the list of what /step answered beside it")
        name = asked.session_id or asked.episode_id
        return await service.slow(client, lambda: scoring.grade_session(service.sessions.current(name, client)))

    @router.get("/log", response_model=EpisodeLog, responses=PROBLEMS, summary="The log of a session")
    async def session_log(request: Request, session_id: Annotated[SessionId | None, Query()] = None) -> EpisodeLog:
        """Everything needed to replay the episode, here or in process."""
        client = client_of(request)

        def go() -> ActionLog:
            with service.sessions.current(session_id, client).held.use() as episode:
                return episode.log()

        return wire_log(await service.quick(client, go))

    return router
