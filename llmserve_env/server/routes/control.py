"""/reset, /step and /state: stateful, isolated and durable sessions over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, FastAPI, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from llmserve_env.env.observation import observe, state_of
from llmserve_env.server.schemas import EpisodeResponse, ResetRequest, SessionId, StateResponse, StepRequest
from llmserve_env.server.service import Service
from llmserve_env.server.sessions import Session
from llmserve_env.tasks.catalog import BENCHMARK

TAG = "Environment Control"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"description": "no such session or task"},
    409: {"description": "the episode is over, or the step is not the next one"},
    413: {"description": "the body is too large"},
    429: {"description": "too many requests"},
    503: {"description": "as many sessions as the server may hold"},
}


def client_of(request: Request) -> str:
    """The address of the client, which stands for the client itself."""
    return request.client.host if request.client else ""


def answer(session: Session) -> Response:
    """The last window of a session, as /reset and /step return it."""
    seen = observe(session.episode)
    reward, done, metadata = seen.pop("reward"), seen.pop("done"), seen["metadata"]
    body = {
        "session_id": session.session_id,
        "episode_id": session.session_id,
        "observation": seen,
        "reward": reward,
        "done": done,
        "metadata": metadata,
        "info": {
            "reward_terms": metadata["reward_terms"],
            "phase": metadata["phase"],
            "held_knobs": metadata["held_knobs"],
        },
        "episode_length": session.episode.task.steps,
    }
    return Response(orjson.dumps(body), media_type="application/json")


async def take_step(service: Service, asked: StepRequest, client: str) -> Response:
    """Step a session and answer."""
    name, action = asked.session_id or asked.episode_id, tuple(asked.action.numbers())
    sessions = service.sessions

    def go() -> Session:
        return sessions.step(sessions.get(name, client), action, asked.step_index)

    # A live session on a quick store is stepped on the event loop, because a thread would cost more than the step.
    is_quick = sessions.store.is_quick and sessions.is_live(name, client)
    session = go() if is_quick else await service.quick(go)
    service.operations.steps_of(session.episode.task.id).inc()
    return answer(session)


class StepRoute(APIRoute):
    """A route that is documented like any other, but parses its body itself: FastAPI's way costs more than a step."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self.endpoint(request, StepRequest.model_validate_json(await request.body()))
        await response(scope, receive, send)


def add_step(app: FastAPI, service: Service) -> None:
    """Add `/step`, on the application itself because an included router takes longer to find it."""

    async def step(request: Request, asked: StepRequest) -> Response:
        """Apply the action to the next window. The step is journaled before this returns."""
        return await take_step(service, asked, client_of(request))

    app.router.add_api_route(
        "/step",
        step,
        methods=["POST"],
        route_class_override=StepRoute,
        response_model=EpisodeResponse,
        responses=PROBLEMS,
        summary="Serve one window",
        tags=[TAG],
    )


def control_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router = APIRouter(tags=[TAG])

    @router.post("/reset", response_model=EpisodeResponse, responses=PROBLEMS, summary="Start an episode")
    async def reset(request: Request, asked: Annotated[ResetRequest | None, Body()] = None) -> Response:
        """Open a session. It is stored before this returns, and survives a restart of the server."""
        asked = asked or ResetRequest()
        task_id = BENCHMARK[0] if asked.task_id is None else asked.task_id
        session_id = asked.session_id or asked.episode_id
        overrides = asked.config.overrides()
        return answer(
            await service.quick(service.sessions.create, task_id, asked.seed, session_id, overrides, client_of(request))
        )

    @router.get("/state", response_model=StateResponse, responses=PROBLEMS, summary="Where an episode stands")
    async def state(request: Request, session_id: Annotated[SessionId | None, Query()] = None) -> StateResponse:
        """The state of a session; without an id, of the one this client reset last, or of none."""
        client = client_of(request)
        if session_id is None and await service.quick(service.sessions.latest, client) is None:
            return StateResponse(episode_id=None, step_count=0)
        session = await service.quick(service.sessions.current, session_id, client)
        name = session.session_id
        return StateResponse(session_id=name, episode_id=name, **state_of(session.episode))

    return router
