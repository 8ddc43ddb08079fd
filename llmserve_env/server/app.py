"""The server: `uvicorn llmserve_env.server.app:app`, the `server` command, and `llmserve serve`.

This module imports little, so that a server listens within a second; `application.py` is loaded behind the entrance.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from llmserve_env.errors import ConfigError
from llmserve_env.server.connections import guard, raise_descriptor_limit
from llmserve_env.server.entrance import Entrance
from llmserve_env.server.process import map_large_blocks

if TYPE_CHECKING:
    from fastapi import FastAPI

DEFAULT_PORT = 8000
BACKLOG = 2048
RECEIVE_BYTES = 16_384
SHUTDOWN_S = 5
KEEP_ALIVE_S = 75
WORKER_TIMEOUT_S = 60
SWITCH_INTERVAL_S = 0.001
"""How long a thread that replays an episode may keep the event loop waiting."""
MAX_WEBSOCKET_BYTES = 65_536
"""No message needs a tenth of that, and each is parsed on the event loop."""
UVICORN: dict[str, Any] = {
    "access_log": False,
    "http": "llmserve_env.server.connections:GuardedHttp",
    "ws": "llmserve_env.server.connections:GuardedWebSocket",
    # Which proxies are believed about a client's address is our own setting, LLMSERVE_TRUSTED_HOPS.
    "proxy_headers": False,
    "ws_max_size": MAX_WEBSOCKET_BYTES,
    # Compressing an observation takes longer than simulating its window.
    "ws_per_message_deflate": False,
    # An agent may think for a minute between two steps; how many connections may be open has its own limit.
    "timeout_keep_alive": KEEP_ALIVE_S,
    # Open pages hold connections that never end by themselves.
    "timeout_graceful_shutdown": SHUTDOWN_S,
}


def log_config(log_level: str) -> dict[str, Any]:
    """How every process of a server logs. Uvicorn applies it in workers, which inherit nothing that is set here."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "filters": {"calm": {"()": "llmserve_env.server.connections.CalmFilter"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
        "loggers": {"uvicorn.error": {"filters": ["calm"]}},
        "root": {"handlers": ["stderr"], "level": log_level.upper()},
    }


def prepare_process() -> None:
    """Prepare a process, be it the only one or a worker, for its first connection."""
    guard.fit_into(raise_descriptor_limit())
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    map_large_blocks()


def load_application() -> FastAPI:
    """The application with the settings of this process."""
    from llmserve_env.server.application import create_app

    return create_app()


app = Entrance(load_application, prepare_process)


def listening_socket(host: str, port: int) -> socket.socket:
    """A bound socket; an OSError with the operating system's reason if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only where the protocol is named.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Requests that one client sends ahead are read in small pieces, so that others have their turn in between.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    bound.bind((host, port))
    # Clients that connect before the event loop runs wait for it instead of being turned away.
    bound.listen(BACKLOG)
    return bound


def serve(host: str, ports: list[int], workers: int = 1, log_level: str = "info") -> None:
    """Listen on all the ports with one process, or with several that share the session store."""
    if workers > 1 and os.environ.get("LLMSERVE_STORE") == "memory":
        raise ConfigError(
            "several workers need a store they can share: set LLMSERVE_STORE to sqlite:/// or postgresql://"
        )
    # The supervisor restarts a worker that has not answered for this long; on a busy machine, a start takes a while.
    served: Any = app if workers == 1 else "llmserve_env.server.app:app"
    config = uvicorn.Config(
        served,
        workers=workers,
        timeout_worker_healthcheck=WORKER_TIMEOUT_S,
        log_level=log_level,
        log_config=log_config(log_level),
        **UVICORN,
    )
    sockets = [listening_socket(host, port) for port in ports]
    shown = "localhost" if host in ("0.0.0.0", "::") else host
    logging.getLogger("llmserve.server").info("open http://%s:%d/web", shown, sockets[0].getsockname()[1])
    if workers > 1:
        Multiprocess(config, sockets=sockets).run()
        return
    server = uvicorn.Server(config)
    app.stop = lambda: setattr(server, "should_exit", True)
    server.run(sockets=sockets)
    if app.has_failed:
        raise SystemExit(1)


def main(argv: list[str] | None = None) -> None:
    """The `server` command."""
    parser = argparse.ArgumentParser(prog="server", description="Serve the environment over HTTP and WebSocket.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, action="append", help=f"repeat for several (default: {DEFAULT_PORT})")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the sessions (default: 1)")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    asked = parser.parse_args(argv)
    serve(asked.host, asked.port or [DEFAULT_PORT], asked.workers, asked.log_level)


if __name__ == "__main__":
    main()
