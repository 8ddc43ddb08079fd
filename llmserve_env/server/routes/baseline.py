"""/baseline: grades of the reference agents, and jobs that grade a language model."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse

from llmserve_env.evaluation.baseline import BASELINE_AGENTS, BASELINE_SEED
from llmserve_env.graders.plan import default_range
from llmserve_env.models import GradeReport
from llmserve_env.server import scoring
from llmserve_env.server.baseline_jobs import BaselineJob
from llmserve_env.server.errors import NotAllowedError
from llmserve_env.server.routes.control import PROBLEMS, client_of
from llmserve_env.server.schemas import BaselineJobReport, BaselineReport, TaskId
from llmserve_env.server.service import Service
from llmserve_env.server.tasks import known_task
from llmserve_env.tasks.catalog import BENCHMARK
from llmserve_env.version import ENVIRONMENT_VERSION

JOB_PATH = "/baseline/jobs/{job_id}"
JobId = Annotated[str, Path(min_length=1, max_length=64)]


def job_report(job: BaselineJob) -> BaselineJobReport:
    """A job as it travels."""
    return BaselineJobReport(
        job_id=job.id,
        status=job.status,
        status_url=JOB_PATH.format(job_id=job.id),
        model=job.settings.model,
        seed=job.seed,
        environment_version=ENVIRONMENT_VERSION,
        calls_planned=job.calls_planned,
        calls_made=job.calls_made,
        steps_planned=job.steps_planned,
        steps_played=job.steps_played,
        results={task_id: {"llm": grade} for task_id, grade in job.results.items()},
        usage=job.usage,
        error=job.error,
    )


def check_same_origin(request: Request) -> None:
    """Refuse what a page of another site makes a visitor's browser send."""
    origin = request.headers.get("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if is_foreign or request.headers.get("sec-fetch-site") == "cross-site":
        raise NotAllowedError("a page of another site may not begin work that costs the operator money")


def baseline_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router, jobs = APIRouter(tags=["Scoring"]), service.baseline_jobs

    @router.get(
        "/baseline",
        response_model=BaselineReport,
        responses={
            **PROBLEMS,
            202: {"model": BaselineJobReport},
            403: {"description": "the operator does not allow it"},
        },
        summary="Reference agents, one fixed seed",
    )
    async def baseline(
        request: Request,
        task_id: Annotated[TaskId | None, Query()] = None,
        use_openai: Annotated[bool, Query(description="add an LLM that turns the knobs: answered with a job")] = False,
        seed: Annotated[int, Query(ge=0, le=2**32 - 1)] = BASELINE_SEED,
        decide_every: Annotated[int, Query(ge=1, le=200, description="windows per question to the LLM")] = 1,
    ) -> Any:
        """The same figures every time, so they are computed once. `use_openai` begins a job that costs money."""
        client = client_of(request)
        names = [known_task(task_id).id] if task_id is not None else list(BENCHMARK)
        if use_openai:
            check_same_origin(request)
            await service.until_ready()
            job = jobs.start(tuple(known_task(name) for name in names), seed, decide_every)
            return JSONResponse(job_report(job).model_dump(), 202, {"Location": job_report(job).status_url})
        results: dict[str, dict[str, GradeReport]] = {}
        for name in names:
            results[name] = {
                agent: await service.slow(client, scoring.baseline, name, agent, seed) for agent in BASELINE_AGENTS
            }
        scores = {name: plan.score for name, graded in results.items() if (plan := graded[BASELINE_AGENTS[0]].plan)}
        return BaselineReport(
            seed=seed,
            environment_version=ENVIRONMENT_VERSION,
            results=results,
            scores=scores,
            expected_range={name: default_range(known_task(name)) for name in scores},
        )

    @router.get(JOB_PATH, response_model=BaselineJobReport, responses=PROBLEMS, summary="Progress and result of a job")
    async def job(job_id: JobId) -> BaselineJobReport:
        """Asking keeps the job going: one that nobody asks about for a minute is cancelled."""
        return job_report(jobs.get(job_id))

    @router.delete(JOB_PATH, response_model=BaselineJobReport, responses=PROBLEMS, summary="Cancel a job")
    async def cancel(job_id: JobId) -> BaselineJobReport:
        """No further call is made; the one under way is not waited for."""
        return job_report(jobs.cancel(job_id))

    return router
