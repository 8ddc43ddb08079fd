"""/grader and /log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request

from llmserve_env.env.episode import ActionLog
from llmserve_env.errors import ConfigError
from llmserve_env.models import EpisodeLog, GradeReport, ServeAction
from llmserve_env.server import scoring
from llmserve_env.server.routes.control import PROBLEMS, client_of
from llmserve_env.server.schemas import GraderRequest, SessionId
from llmserve_env.server.service import Service
from llmserve_env.server.tasks import known_task


def wire_log(log: ActionLog) -> EpisodeLog:
    """The log as it travels; /grader takes it back as it is."""
    names = [knob.name for knob in known_task(log.task_id).action_knobs]
    actions = [ServeAction.model_validate(dict(zip(names, action, strict=True))) for action in log.actions]
    return EpisodeLog(
        task_id=log.task_id,
        task_version=log.task_version,
        environment_version=log.environment_version,
        seed=log.seed,
        actions=actions,
        rewards=list(log.rewards),
        mode=log.mode,
    )


def scoring_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router = APIRouter(tags=["Scoring"])

    @router.post("/grader", response_model=GradeReport, responses=PROBLEMS, summary="Grade an episode")
    async def grader(request: Request, asked: Annotated[GraderRequest | None, Body()] = None) -> GradeReport:
        """Grade a session, or a log: it is replayed, so only what the actions did counts."""
        asked, client = asked or GraderRequest(), client_of(request)
        if asked.episode_log is not None:
            if asked.session_id or asked.episode_id:
                raise ConfigError("give a session_id or an episode_log, not both")
            if len(asked.episode_log.actions) > service.settings.max_log_steps:
                raise ConfigError(f"episode_log.actions may have {service.settings.max_log_steps} entries at most")
            return await service.slow(client, scoring.grade_log, scoring.log_of(asked.episode_log))
        name = asked.session_id or asked.episode_id
        return await service.slow(client, lambda: scoring.grade_session(service.sessions.current(name, client)))

    @router.get("/log", response_model=EpisodeLog, responses=PROBLEMS, summary="The log of a session")
    async def log(request: Request, session_id: Annotated[SessionId | None, Query()] = None) -> EpisodeLog:
        """Everything needed to live through the episode again, here or in process."""
        client = client_of(request)

        def go() -> ActionLog:
            with service.sessions.current(session_id, client).held.use() as episode:
                return episode.log()

        return wire_log(await service.quick(client, go))

    return router
