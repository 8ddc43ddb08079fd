"""/reset, /step and /state: stateful, isolated and durable sessions over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, FastAPI, Query, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from llmserve_env.env.observation import observe, state_of
from llmserve_env.server.clients import COOKIE, COOKIE_AGE_S, Client, new_token
from llmserve_env.server.errors import StoreBusyError
from llmserve_env.server.plan_info import step_info
from llmserve_env.server.schemas import EpisodeResponse, ResetRequest, SessionId, StateResponse, StepRequest
from llmserve_env.server.service import Service
from llmserve_env.server.sessions import Session
from llmserve_env.tasks.catalog import BENCHMARK

TAG = "Environment Control"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    404: {"description": "no such session or task"},
    409: {
        "description": "the episode is over, the step is not the next one, or it is not clear whose session is meant"
    },
    413: {"description": "the body is too large"},
    429: {"description": "too many requests"},
    503: {"description": "the session store cannot be used at the moment, or the call took too long"},
}


def client_of(request: Request) -> Client:
    """Who sent the request."""
    client: Client = request.state.client
    return client


def answer_of(session: Session) -> bytes:
    """The last window of a session, as /reset and /step return it."""
    with session.held.use() as episode:
        seen, length = observe(episode), episode.task.steps
        info = step_info(episode, seen, session.overrides)
    reward, done, metadata = seen.pop("reward"), seen.pop("done"), seen["metadata"]
    body = {
        "session_id": session.session_id,
        "episode_id": session.session_id,
        "observation": seen,
        "reward": reward,
        "done": done,
        "metadata": metadata,
        "info": info,
        "episode_length": length,
    }
    return orjson.dumps(body)


def json_response(content: bytes) -> Response:
    """A response of JSON that is ready to be sent."""
    return Response(content, media_type="application/json")


def give_cookie(response: Response, request: Request, token: str) -> Response:
    """Let the client be told from others at its address, if it keeps cookies."""
    response.set_cookie(
        COOKIE, token, max_age=COOKIE_AGE_S, httponly=True, samesite="lax", secure=request.url.scheme == "https"
    )
    return response


async def take_step(service: Service, asked: StepRequest, client: Client) -> Response:
    """Step a session and answer."""
    name, changes = asked.session_id or asked.episode_id, asked.action.changes()
    sessions = service.sessions

    def go() -> tuple[str, bytes]:
        session = sessions.step(sessions.get(name, client), changes, asked.step_index, client)
        return session.record.task_id, answer_of(session)

    # A session at hand on a quick store is stepped on the event loop, because a thread would cost more than the step.
    try:
        is_quick = service.is_ready and sessions.store.is_quick and sessions.at_hand(name, client) is not None
        task_id, answer = go() if is_quick else await service.quick(client, go)
    except StoreBusyError:
        task_id, answer = await service.quick(client, go)
    service.operations.steps_of(task_id).inc()
    return json_response(answer)


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


async def start_session(service: Service, request: Request, asked: ResetRequest) -> Response:
    """Open a session and answer."""
    client, token = client_of(request), new_token()
    task_id = BENCHMARK[0] if asked.task_id is None else asked.task_id
    overrides = asked.config.overrides()

    def go() -> bytes:
        name = asked.session_id or asked.episode_id
        return answer_of(service.sessions.create(task_id, asked.seed, name, overrides, client, token))

    response = json_response(await service.quick(client, go))
    return response if client.owner else give_cookie(response, request, token)


async def state_for(service: Service, client: Client, session_id: str | None) -> StateResponse:
    """The state of a session; without an id, of the one this client reset last, or of none."""
    sessions = service.sessions

    def go() -> StateResponse:
        if session_id is None and client.can_be_recognised and not sessions.has_any(client):
            return StateResponse(episode_id=None, step_count=0)
        session = sessions.current(session_id, client)
        with session.held.use() as episode:
            return StateResponse(session_id=session.session_id, episode_id=session.session_id, **state_of(episode))

    return await service.quick(client, go)


def control_routes(service: Service) -> APIRouter:
    """The routes over this service."""
    router = APIRouter(tags=[TAG])

    @router.post("/reset", response_model=EpisodeResponse, responses=PROBLEMS, summary="Start an episode")
    async def reset(request: Request, asked: Annotated[ResetRequest | None, Body()] = None) -> Response:
        """Open a session. It is stored before this returns, and survives a restart of the server."""
        return await start_session(service, request, asked or ResetRequest())

    @router.get("/state", response_model=StateResponse, responses=PROBLEMS, summary="Where an episode stands")
    async def state(request: Request, session_id: Annotated[SessionId | None, Query()] = None) -> StateResponse:
        """The state of a session; without an id, of the one this client reset last, or of none."""
        return await state_for(service, client_of(request), session_id)

    return router
