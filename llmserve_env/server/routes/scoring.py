"""/grader, /log and /baseline."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request

from llmserve_env.env.episode import ActionLog
from llmserve_env.errors import ConfigError
from llmserve_env.evaluation.baseline import BASELINE_AGENTS, BASELINE_SEED
from llmserve_env.models import EpisodeLog, GradeReport, ServeAction
from llmserve_env.server import scoring
from llmserve_env.server.routes.control import PROBLEMS, client_of
from llmserve_env.server.schemas import BaselineReport, GraderRequest, SessionId, TaskId
from llmserve_env.server.service import Service
from llmserve_env.server.tasks import known_task
from llmserve_env.tasks.catalog import BENCHMARK
from llmserve_env.version import ENVIRONMENT_VERSION


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
        asked = asked or GraderRequest()
        if asked.episode_log is not None:
            if asked.session_id or asked.episode_id:
                raise ConfigError("give a session_id or an episode_log, not both")
            if len(asked.episode_log.actions) > service.settings.max_log_steps:
                raise ConfigError(f"episode_log.actions may have {service.settings.max_log_steps} entries at most")
            return await service.slow(scoring.grade_log, scoring.log_of(asked.episode_log))
        name, client = asked.session_id or asked.episode_id, client_of(request)
        return await service.slow(lambda: scoring.grade_of(service.sessions.current(name, client).episode))

    @router.get("/log", response_model=EpisodeLog, responses=PROBLEMS, summary="The log of a session")
    async def log(request: Request, session_id: Annotated[SessionId | None, Query()] = None) -> EpisodeLog:
        """Everything needed to live through the episode again, here or in process."""
        session = await service.quick(service.sessions.current, session_id, client_of(request))
        return wire_log(session.episode.log())

    @router.get(
        "/baseline", response_model=BaselineReport, responses=PROBLEMS, summary="Reference agents, one fixed seed"
    )
    async def baseline(
        task_id: Annotated[TaskId | None, Query()] = None,
        use_openai: Annotated[bool, Query(description="add an LLM that turns the knobs; needs OPENAI_API_KEY")] = False,
        seed: Annotated[int, Query(ge=0, le=2**32 - 1)] = BASELINE_SEED,
    ) -> BaselineReport:
        """The same figures every time, so they are computed once."""
        names = [known_task(task_id).id] if task_id is not None else list(BENCHMARK)
        agents = (*BASELINE_AGENTS, *(("llm",) if use_openai else ()))
        results: dict[str, dict[str, GradeReport]] = {}
        for name in names:
            results[name] = {agent: await service.slow(scoring.baseline, name, agent, seed) for agent in agents}
        return BaselineReport(seed=seed, environment_version=ENVIRONMENT_VERSION, results=results)

    return router
