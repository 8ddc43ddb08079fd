"""The application: this package's routes and WebSocket, and OpenEnv's own server for everything else it defines."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.utils import get_openapi
from openenv.core.env_server.http_server import HTTPEnvServer
from openenv.core.env_server.types import ConcurrencyConfig, ServerMode

from llmserve_env.errors import ConfigError
from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server import errors
from llmserve_env.server.clients import Client
from llmserve_env.server.console import CONSOLE_PATH, Console
from llmserve_env.server.entrance import SOCKET_PATH
from llmserve_env.server.llmserve_environment import DESCRIPTION, NAME, LLMServeEnvironment
from llmserve_env.server.mcp import Mcp, mcp_routes
from llmserve_env.server.middleware import Gatekeeper
from llmserve_env.server.routes.agents import agent_routes
from llmserve_env.server.routes.baseline import baseline_routes
from llmserve_env.server.routes.control import add_step, control_routes
from llmserve_env.server.routes.information import information_routes
from llmserve_env.server.routes.pages import METHODS, PAGES, STATIC_PATH, static_files
from llmserve_env.server.routes.scoring import scoring_routes
from llmserve_env.server.routes.web import web_routes
from llmserve_env.server.service import Service
from llmserve_env.server.settings import Settings, settings
from llmserve_env.server.sockets import Sockets

OPENENV = Client("openenv")
"""The client of sessions that OpenEnv's own server makes, because it does not say for whom it makes them."""
API_VERSION = "1.0.0"
"""The version of OpenEnv's protocol, which its validator reads from the OpenAPI document."""
FIRST_DESCRIBED = ("/reset", "/step")
"""What every client calls, so their descriptions come first."""


def create_app(chosen: Settings | None = None) -> FastAPI:
    """A server with its own sessions and limits."""
    chosen = chosen or settings()
    service = Service(chosen)

    def environment(client: Client = OPENENV) -> LLMServeEnvironment:
        sessions = service.sessions
        in_thread = partial(service.in_thread, client)
        return LLMServeEnvironment(partial(sessions.keep, client), sessions.episodes, service.memory, in_thread)

    openenv, openenv_server = _openenv_application(chosen, environment)
    mcp = Mcp(openenv, chosen, service.rates.plays, lambda name: openenv_server.get_session_info(name) is not None)
    sockets = Sockets(service, openenv, mcp.ask, environment)
    service.num_websockets = lambda: sockets.num_open + openenv_server.active_sessions
    console = Console(service) if chosen.openenv_console else None

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(service.stop)
            await service.start(sockets.close_idle)
            # Starlette does not run the lifespan of a mounted application. OpenEnv's removes idle MCP sessions.
            await stack.enter_async_context(openenv.router.lifespan_context(openenv))
            if console is not None:
                stack.push_async_callback(console.stop)
            yield

    app = FastAPI(
        title="LLMServeEnv",
        version=API_VERSION,
        description=DESCRIPTION,
        license_info={"name": "Apache-2.0"},
        # FastAPI's own pages load their scripts from another host; ours is in routes/pages.py.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    _add_routes(app, service, sockets, mcp, console)
    app.mount("/", openenv)
    _document(app, openenv)
    errors.install(app, lambda: service.note_store_error("a request"))
    app.add_middleware(CORSMiddleware, allow_origins=chosen.cors_origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Gatekeeper, settings=chosen, operations=service.operations, rates=service.rates)
    return app


def _openenv_application(
    chosen: Settings, environment: Callable[[], LLMServeEnvironment]
) -> tuple[FastAPI, HTTPEnvServer]:
    """OpenEnv's own server as an application, and the object that counts its sessions."""
    limits = ConcurrencyConfig(max_concurrent_envs=chosen.max_mcp_sessions, session_timeout=chosen.mcp_idle_s)
    server = HTTPEnvServer(
        environment, ServeAction, ServeObservation, concurrency_config=limits, env_name=NAME, state_cls=ServeState
    )
    application = FastAPI(docs_url=None, redoc_url=None)
    mode, modes = os.environ.get("OPENENV_MODE", ServerMode.SIMULATION.value), [one.value for one in ServerMode]
    if mode.lower() not in modes:
        raise ConfigError(f"OPENENV_MODE must be one of {', '.join(modes)}; got {mode!r}")
    server.register_routes(application, mode=mode)
    errors.install(application)
    return application, server


def _add_routes(app: FastAPI, service: Service, sockets: Sockets, mcp: Mcp, console: Console | None) -> None:
    """Our routes. The first match wins, so each hides the route of OpenEnv that has the same path."""
    add_step(app, service)
    app.add_api_websocket_route(SOCKET_PATH, sockets.endpoint)
    for routes in (control_routes, web_routes, information_routes, scoring_routes, baseline_routes, agent_routes):
        app.include_router(routes(service))
    app.include_router(mcp_routes(mcp))
    for path, page in PAGES.items():
        app.add_api_route(path, page, methods=METHODS, include_in_schema=False)
    app.mount(STATIC_PATH, static_files())
    if console is not None:
        app.mount(CONSOLE_PATH, console)


def _document(app: FastAPI, openenv: FastAPI) -> None:
    """Describe both applications in one OpenAPI document; where they share a path, ours is the one that answers."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                license_info=app.license_info,
                routes=app.routes,
            )
            theirs = openenv.openapi()
            ours = document["paths"]
            document["paths"] = {path: ours[path] for path in FIRST_DESCRIBED} | ours
            document["paths"] |= {path: found for path, found in theirs["paths"].items() if path not in ours}
            document["components"]["schemas"] = {**theirs["components"]["schemas"], **document["components"]["schemas"]}
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the way FastAPI documents
