"""The application: OpenEnv's routes and WebSocket, our sessions in place of its stateless ones, and the page."""

from __future__ import annotations

import argparse
import logging
import os
import socket
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from fastapi.middleware.cors import CORSMiddleware
from fastapi.staticfiles import StaticFiles
from openenv.core.env_server.types import ConcurrencyConfig, ServerMode
from uvicorn.supervisors import Multiprocess

from llmserve_env.errors import ConfigError
from llmserve_env.models import ServeAction, ServeObservation, ServeState
from llmserve_env.server import errors
from llmserve_env.server.console import CONSOLE_PATH, console_app
from llmserve_env.server.llmserve_environment import DESCRIPTION, NAME, LLMServeEnvironment
from llmserve_env.server.middleware import Gatekeeper
from llmserve_env.server.quick_socket import QuickServer, quicken
from llmserve_env.server.routes.agents import agent_routes
from llmserve_env.server.routes.control import control_routes, quick_step_route
from llmserve_env.server.routes.information import information_routes
from llmserve_env.server.routes.pages import STATIC, page_routes
from llmserve_env.server.routes.scoring import scoring_routes
from llmserve_env.server.service import Service
from llmserve_env.server.settings import Settings, settings
from llmserve_env.server.websocket_protocol import DirectProtocol

DEFAULT_PORT = 8000
API_VERSION = "1.0.0"
"""OpenEnv's checker reads the protocol's version here."""
BACKLOG = 2048
SHUTDOWN_S = 5
WORKER_TIMEOUT_S = 120
MAX_WEBSOCKET_BYTES = 1_000_000


def replace_routes(app: FastAPI, router: APIRouter) -> None:
    """Put ours where OpenEnv has a route of the same path and method."""
    ours = {(getattr(route, "path", ""), method) for route in router.routes for method in getattr(route, "methods", ())}
    app.router.routes[:] = [
        route
        for route in app.router.routes
        if not ours & {(getattr(route, "path", ""), method) for method in getattr(route, "methods", None) or ()}
    ]
    app.include_router(router)


def create_app(chosen: Settings | None = None) -> FastAPI:
    """A server with its own sessions and limits."""
    chosen = chosen or settings()
    service = Service(chosen)
    app = FastAPI(
        title="LLMServeEnv", version=API_VERSION, description=DESCRIPTION, license_info={"name": "Apache-2.0"}
    )
    app.state.service = service

    def environment() -> LLMServeEnvironment:
        return LLMServeEnvironment(keep=service.sessions.keep, episodes=service.sessions.episodes)

    limits = ConcurrencyConfig(max_concurrent_envs=chosen.max_websockets, session_timeout=chosen.websocket_idle_s)
    openenv = QuickServer(
        environment, ServeAction, ServeObservation, concurrency_config=limits, env_name=NAME, state_cls=ServeState
    )
    openenv.register_routes(app, mode=os.environ.get("OPENENV_MODE", ServerMode.SIMULATION.value))
    service.num_websockets = lambda: openenv.active_sessions
    for routes in (control_routes, information_routes, scoring_routes, agent_routes):
        replace_routes(app, routes(service))
    app.include_router(page_routes())
    app.router.routes.insert(0, quick_step_route(service))
    quicken(app, openenv)
    app.mount("/web/static", StaticFiles(directory=STATIC), name="static")
    _run_with(app, service)
    errors.install(app)
    app.add_middleware(CORSMiddleware, allow_origins=chosen.cors_origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Gatekeeper, settings=chosen, operations=service.operations)
    return app


def _run_with(app: FastAPI, service: Service) -> None:
    """Start and stop the parts with the app. OpenEnv's console is built here because it wants a running event loop."""
    stack = AsyncExitStack()

    async def start() -> None:
        await service.start()
        if service.settings.openenv_console:
            console = console_app()
            app.mount(CONSOLE_PATH, console)
            await stack.enter_async_context(console.router.lifespan_context(console))

    app.router.on_startup.append(start)
    app.router.on_shutdown.append(stack.aclose)
    app.router.on_shutdown.append(service.stop)


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; the operating system's reason if it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol is named.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host, port))
    # Clients that come while the application starts wait for it instead of being turned away.
    bound.listen(BACKLOG)
    return bound


def serve(host: str, ports: list[int], workers: int = 1, log_level: str = "info") -> None:
    """Listen on all the ports with one process, or several that share the session store."""
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config: dict[str, Any] = {
        "log_level": log_level,
        "access_log": False,
        "ws": DirectProtocol,
        "ws_max_size": MAX_WEBSOCKET_BYTES,
        # Compressing an observation takes longer than simulating its window.
        "ws_per_message_deflate": False,
        # Open pages hold connections that never end by themselves.
        "timeout_graceful_shutdown": SHUTDOWN_S,
    }
    sockets = [listening_socket(host, port) for port in ports]
    shown = "localhost" if host in ("0.0.0.0", "::") else host
    logging.getLogger("llmserve.server").info("open http://%s:%d/web", shown, sockets[0].getsockname()[1])
    if workers == 1:
        uvicorn.Server(uvicorn.Config(app, **config)).run(sockets=sockets)
        return
    if settings().store == "memory":
        raise ConfigError(
            "several workers need a store they can share: set LLMSERVE_STORE to sqlite:/// or postgresql://"
        )
    # A worker that compiles the kernels for a minute is not dead.
    shared = uvicorn.Config(
        "llmserve_env.server.app:app", workers=workers, timeout_worker_healthcheck=WORKER_TIMEOUT_S, **config
    )
    Multiprocess(shared, sockets=sockets).run()


def main(argv: list[str] | None = None) -> None:
    """The `server` command."""
    parser = argparse.ArgumentParser(prog="server", description="Serve the environment over HTTP and WebSocket.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, action="append", help=f"repeat for several (default: {DEFAULT_PORT})")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the sessions (default: 1)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    asked = parser.parse_args(argv)
    serve(asked.host, asked.port or [DEFAULT_PORT], asked.workers, asked.log_level)


app = create_app()

if __name__ == "__main__":
    main()
