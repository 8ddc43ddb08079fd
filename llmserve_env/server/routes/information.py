"""Routes that need no session: health, tasks, schemas, versions and metrics."""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from llmserve_env.backends.real.settings import RealSettings
from llmserve_env.engine.knobs import KNOB
from llmserve_env.env.warmup import is_warm
from llmserve_env.models import ServeAction, ServeObservation
from llmserve_env.server.connections import guard
from llmserve_env.server.process import resident_bytes
from llmserve_env.server.readiness import Readiness
from llmserve_env.server.schemas import HealthResponse, ReadyResponse, TaskInfo, TasksResponse
from llmserve_env.server.service import Service
from llmserve_env.server.tasks import listed_tasks
from llmserve_env.tasks.task import Task
from llmserve_env.version import ENVIRONMENT_VERSION, PACKAGE_VERSION


def task_info(task: Task) -> TaskInfo:
    """A task as /tasks lists it."""
    slos = {
        entry.name: {"ttft_slo_ms": entry.ttft_slo_ms, "patience_s": entry.patience_s}
        for entry in task.workload.classes
    }
    return TaskInfo(
        id=task.id,
        number=task.number,
        version=task.version,
        gym_id=task.gym_id,
        name=task.name,
        difficulty=task.difficulty,
        description=task.description,
        teaches=task.teaches,
        episode_length=task.steps,
        window_s=task.window_s,
        active_knobs=list(task.knobs.active),
        active_actions=[KNOB[name].alias or name for name in task.knobs.active],
        masked_knobs=list(task.masked_knobs),
        slos=slos,
        memory_limit_gb=task.deployment.memory_limit_gb,
        replicas=task.deployment.replicas,
        reward_weights=task.reward.weights.model_dump(),
        grader_weights={str(name): weight for name, weight in task.grader.weights.items()},
    )


def health_of(service: Service) -> HealthResponse:
    """What /health answers."""
    uptime_s = round(time.monotonic() - service.started_at, 3)
    return HealthResponse(
        status="healthy",
        ready=service.is_ready,
        warming_up=not service.is_ready,
        progress=1.0 if service.is_ready else service.compiled_share,
        active_sessions=len(service.sessions.directory) + service.num_websockets(),
        stored_sessions=service.sessions.limits.num_stored,
        uptime_s=uptime_s,
        uptime_seconds=uptime_s,
    )


def runtime_of(service: Service) -> dict[str, Any]:
    """What /runtime answers."""
    mode = service.settings.mode
    backends = {"sim": "simulator", "table": "lookup table"}
    return {
        "mode": mode,
        "backend": RealSettings().provider if mode == "real" else backends[mode],
        "kernels_compiled": is_warm(),
        "session_store": service.settings.store_url.split(":")[0] if mode == "sim" else "memory",
        "versions": {
            "package": PACKAGE_VERSION,
            "environment": ENVIRONMENT_VERSION,
            "tasks": {task.id: task.version for task in listed_tasks()},
            "openenv": version("openenv"),
            "python": platform.python_version(),
        },
    }


def metrics_of(service: Service) -> bytes:
    """What /metrics answers, with the gauges as they are now."""
    operations = service.operations
    operations.live_sessions.set(len(service.sessions.directory))
    operations.stored_sessions.set(service.sessions.limits.num_stored)
    operations.episode_bytes.set(service.memory.num_bytes)
    operations.packed_episodes.set(service.memory.num_packed)
    operations.resident_bytes.set(resident_bytes())
    operations.connections.set(guard.num_open)
    operations.note_refused_connections(guard.refused)
    operations.websockets.set(service.num_websockets())
    return generate_latest(operations.registry)


def information_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router, readiness = APIRouter(tags=["Environment Info"]), Readiness(service)

    @router.get(
        "/health", response_model=HealthResponse, tags=["Health"], summary="Whether the server is up, ready and busy"
    )
    async def health() -> HealthResponse:
        return health_of(service)

    @router.get(
        "/ready",
        response_model=ReadyResponse,
        responses={503: {"model": ReadyResponse}},
        tags=["Health"],
        summary="Whether the next request will be served",
    )
    async def ready() -> JSONResponse:
        found = await readiness.check()
        return JSONResponse(found.model_dump(), 200 if found.ready else 503)

    @router.get("/tasks", response_model=TasksResponse, summary="The tasks and the action they share")
    async def tasks() -> TasksResponse:
        found = [task_info(task) for task in listed_tasks()]
        return TasksResponse(tasks=found, action_schema=ServeAction.model_json_schema())

    @router.get("/info", summary="Schemas and reward weights")
    async def info() -> dict[str, Any]:
        return {
            "action_schema": ServeAction.model_json_schema(),
            "observation_schema": ServeObservation.model_json_schema(),
            "reward_range": [-1.0, 1.0],
            "reward_weights": {task.id: task.reward.weights.model_dump() for task in listed_tasks()},
        }

    @router.get("/runtime", summary="Mode, backend and versions")
    async def runtime() -> dict[str, Any]:
        return runtime_of(service)

    @router.get("/metrics", tags=["Health"], summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        await readiness.check()
        return Response(metrics_of(service), media_type=CONTENT_TYPE_LATEST)

    return router
