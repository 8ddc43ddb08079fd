"""Steps over OpenEnv's WebSocket without its detours: the same frames in half the time.

OpenEnv's own endpoint stays in charge of every connection. Only a plain step of a running simulation is answered here;
any other message, and any step that is wrong or that ends the episode, goes on to OpenEnv as if nobody had looked.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from functools import lru_cache

import orjson
from fastapi import FastAPI
from openenv.core.env_server.http_server import HTTPEnvServer
from openenv.core.env_server.interfaces import Environment
from pydantic import ValidationError
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from llmserve_env.models import ServeAction
from llmserve_env.server.llmserve_environment import LLMServeEnvironment
from llmserve_env.server.websocket_protocol import EXTENSION

PATH = "/ws"
NOTE_INTERVAL_S = 1.0
MAX_REMEMBERED = 512
"""Longer messages are checked each time, so that nobody can fill the memory with them."""
_connection: ContextVar[QuickSocket | None] = ContextVar("connection", default=None)


class QuickServer(HTTPEnvServer):
    """OpenEnv's server; it tells a connection which session it has been given."""

    async def _create_session(self) -> tuple[str, Environment]:
        session_id, environment = await super()._create_session()
        connection = _connection.get()
        if connection is not None:
            connection.session_id, connection.environment = session_id, environment
        return session_id, environment

    def note_steps(self, session_id: str, steps: int) -> None:
        """Keep an active session from being taken for an idle one."""
        info = self._session_info.get(session_id)
        if info is not None:
            info.last_activity_at, info.step_count = time.time(), info.step_count + steps


def _action_of(text: str | bytes) -> tuple[float, ...] | None:
    """The action of a plain step; None for any other message."""
    try:
        message = orjson.loads(text)
        if not isinstance(message, dict) or message.keys() != {"type", "data"} or message["type"] != "step":
            return None
        return tuple(ServeAction.model_validate(message["data"]).numbers())
    except (orjson.JSONDecodeError, ValidationError):
        return None


_remembered_action_of = lru_cache(maxsize=4096)(_action_of)
"""Policies hold their knobs for many windows: the same message again is not checked again."""


class QuickSocket(WebSocket):
    """A connection that answers plain steps by itself."""

    server: QuickServer
    session_id = ""
    environment: LLMServeEnvironment | None = None
    _steps = 0
    _noted_at_s = 0.0

    async def receive_text(self) -> str:
        """The next message that is not a plain step."""
        while True:
            text = await super().receive_text()
            answer = self.answer(text)
            if answer is None:
                self._note()
                return text
            await self.send_text(answer.decode())

    def answer(self, text: str | bytes) -> bytes | None:
        """The frame that answers a plain step; None for any other message."""
        if self.environment is None:
            return None
        action = _remembered_action_of(text) if len(text) <= MAX_REMEMBERED else _action_of(text)
        seen = None if action is None else self.environment.quick_step(action)
        if seen is None:
            return None
        self._steps += 1
        if time.monotonic() - self._noted_at_s > NOTE_INTERVAL_S:
            self._note()
        data = {"reward": seen.pop("reward"), "done": seen.pop("done"), "metadata": seen["metadata"]}
        return orjson.dumps({"type": "observation", "data": {"observation": seen, **data}})

    def _note(self) -> None:
        self.server.note_steps(self.session_id, self._steps)
        self._steps, self._noted_at_s = 0, time.monotonic()


def quicken(app: FastAPI, server: QuickServer) -> None:
    """Put the quick socket in front of OpenEnv's endpoint."""
    endpoint = next(route.endpoint for route in app.router.routes if getattr(route, "path", "") == PATH)  # type: ignore[attr-defined]

    async def connect(websocket: WebSocket) -> None:
        connection = QuickSocket(websocket.scope, websocket._receive, websocket._send)
        connection.server = server
        # Our own protocol asks right where a message arrives; any other server hands it to `receive_text`.
        protocol = websocket.scope.get("extensions", {}).get(EXTENSION)
        if protocol is not None:
            protocol.answer = connection.answer
        _connection.set(connection)
        await endpoint(connection)

    app.router.routes.insert(0, WebSocketRoute(PATH, connect))
