"""`/ws`: OpenEnv's WebSocket protocol, served on Starlette alone so that a step costs little more than its simulation.

Each connection is one session with its own environment. The messages are OpenEnv's: `reset`, `step`, `state`,
`close` and `mcp`. Two things are left to OpenEnv: `mcp` messages, and connections that join a session made by `/mcp`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any

import orjson
from openenv.core.env_server.exceptions import SessionCapacityError
from openenv.core.env_server.mcp_types import WSMCPMessage, WSMCPResponse
from openenv.core.env_server.serialization import serialize_observation
from openenv.core.env_server.types import (
    WSCloseMessage,
    WSErrorCode,
    WSErrorResponse,
    WSObservationResponse,
    WSResetMessage,
    WSStateMessage,
    WSStateResponse,
    WSStepMessage,
)
from pydantic import ValidationError
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from llmserve_env.env.knob_changes import Changes
from llmserve_env.errors import LLMServeError
from llmserve_env.models import ServeAction
from llmserve_env.server.clients import Client, identify
from llmserve_env.server.errors import MAX_PROBLEMS, StoreUnavailableError, TooManyWaitingError
from llmserve_env.server.limits import Rates
from llmserve_env.server.llmserve_environment import LLMServeEnvironment
from llmserve_env.server.mcp import GOING_AWAY, ended_when_idle
from llmserve_env.server.service import Service

log = logging.getLogger("llmserve.server")
MAX_REMEMBERED_CHARS = 512
"""Longer messages are parsed each time, so that the cache of actions stays small."""
MESSAGES_IN_A_ROW = 16
"""A client that sends ahead gets this many answers before others have their turn."""
MIN_CHECK_INTERVAL_S = 1.0
AskMcp = Callable[[dict[str, Any], Client], Awaitable[dict[str, Any]]]
INTERNAL_ERROR = "internal error; the server's log has the details"


def _plain_action(text: str) -> Changes | None:
    """What a well-formed step message changes; None for any other message."""
    try:
        message = orjson.loads(text)
        if not isinstance(message, dict) or message.keys() != {"type", "data"} or message["type"] != "step":
            return None
        changes: Changes = ServeAction.model_validate(message["data"]).changes()
        return changes
    except (orjson.JSONDecodeError, ValidationError):
        return None


_remembered_action = lru_cache(maxsize=4096)(_plain_action)
"""Policies repeat their actions, so most messages have been parsed before."""


def error_frame(code: WSErrorCode, message: str, **details: Any) -> str:
    """An error in OpenEnv's format."""
    frame: str = WSErrorResponse(data={"message": message, "code": code, **details}).model_dump_json()
    return frame


class Connection:
    """One client's session."""

    def __init__(
        self,
        websocket: WebSocket,
        environment: LLMServeEnvironment,
        ask_mcp: AskMcp,
        client: Client,
        rates: Rates,
        note_error: Callable[[], None],
    ) -> None:
        self._websocket, self._environment, self._ask_mcp = websocket, environment, ask_mcp
        self._rates, self._note_error, self.client = rates, note_error, client
        self.last_message_at_s = asyncio.get_running_loop().time()

    async def serve(self) -> None:
        """Answer every message until the client or the server closes the connection."""
        websocket, clock = self._websocket, asyncio.get_running_loop().time
        for count in itertools.count(1):
            if count % MESSAGES_IN_A_ROW == 0:
                await asyncio.sleep(0)
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            self.last_message_at_s = clock()
            text = message.get("text") or ""
            answer = await self._paced_answer(text)
            if answer is None:
                return
            await websocket.send_text(answer)

    async def close(self) -> None:
        """End the connection from the server's side."""
        if self._websocket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect):
                await self._websocket.close(GOING_AWAY, "idle for too long")

    async def _paced_answer(self, text: str) -> str | None:
        """The answer to a message, not before the client's rate limit allows one; None when the client closes."""
        changes = _remembered_action(text) if len(text) <= MAX_REMEMBERED_CHARS else _plain_action(text)
        if changes is None:
            await self._rates.others.turn(self.client.address)
            return await self._answer(text)
        while (wait_s := self._rates.steps.wait_s(self.client.address)) > 0.0:
            await asyncio.sleep(wait_s)
        return self._quick_answer(changes) or await self._answer(text)

    def _quick_answer(self, changes: Changes) -> str | None:
        """The answer to a plain step of a running simulation; None for one that does more or would have to wait."""
        seen = self._environment.quick_step(changes)
        if seen is None:
            return None
        data = {"reward": seen.pop("reward"), "done": seen.pop("done"), "metadata": seen["metadata"]}
        return orjson.dumps({"type": "observation", "data": {"observation": seen, **data}}).decode()

    async def _answer(self, text: str) -> str | None:
        """The answer to any message; None when the client asks to close."""
        try:
            message = json.loads(text)
            # Half a surrogate pair is valid JSON, but it cannot be sent back in an error; nor are long numbers read.
            json.dumps(message, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            return error_frame(WSErrorCode.INVALID_JSON, f"Invalid JSON: {error}")
        if not isinstance(message, dict):
            return error_frame(WSErrorCode.INVALID_JSON, "Invalid JSON: a message must be an object")
        try:
            return await self._handle(message)
        except ValidationError as error:
            return error_frame(WSErrorCode.VALIDATION_ERROR, "Invalid message", errors=error.errors()[:MAX_PROBLEMS])
        except LLMServeError as error:
            return error_frame(WSErrorCode.EXECUTION_ERROR, str(error))
        except Exception:
            # The outermost handler of a message: a bug answers one message, and the session goes on.
            log.exception("unexpected error on a WebSocket")
            self._note_error()
            return error_frame(WSErrorCode.EXECUTION_ERROR, INTERNAL_ERROR)

    async def _handle(self, message: dict[str, Any]) -> str | None:
        environment, response = self._environment, None
        match message.get("type", ""):
            case "step":
                action = ServeAction.model_validate(WSStepMessage(**message).data)
                response = WSObservationResponse(data=serialize_observation(await environment.step_async(action)))
            case "reset":
                options = WSResetMessage(**message).data
                response = WSObservationResponse(data=serialize_observation(await environment.reset_async(**options)))
            case "state":
                WSStateMessage(**message)
                response = WSStateResponse(data=(await environment.state_async()).model_dump())
            case "mcp":
                await self._rates.plays.turn(self.client.address)
                response = WSMCPResponse(data=await self._ask_mcp(WSMCPMessage(**message).data, self.client))
            case "close":
                WSCloseMessage(**message)
                return None
            case unknown:
                return error_frame(WSErrorCode.UNKNOWN_TYPE, f"Unknown message type: {unknown}")
        frame: str = response.model_dump_json()
        return frame


class Sockets:
    """All connections of this process: as many as the settings allow, and none that is idle for too long."""

    def __init__(
        self, service: Service, openenv: ASGIApp, ask_mcp: AskMcp, environment: Callable[[Client], LLMServeEnvironment]
    ) -> None:
        self._service, self._openenv, self._ask_mcp, self._environment = service, openenv, ask_mcp, environment
        self._open: set[Connection] = set()
        self._open_of: Counter[str] = Counter()

    @property
    def num_open(self) -> int:
        return len(self._open)

    async def endpoint(self, websocket: WebSocket) -> None:
        """Serve one connection."""
        settings = self._service.settings
        client = identify(websocket.scope, settings.trusted_hops)
        # Without an id, OpenEnv would make another session of /mcp.
        if websocket.query_params.get("session_id"):
            await self._service.until_ready()
            receive = ended_when_idle(websocket.receive, settings.websocket_idle_s)
            paced = self._service.rates.others.paced(receive, client.address)
            await self._openenv(websocket.scope, paced, websocket.send)
            return
        await websocket.accept()
        counts = (
            (self.num_open, settings.max_websockets),
            (self._open_of[client.address], settings.max_websockets_per_client),
        )
        for count, limit in counts:
            if count >= limit:
                await self._refuse(websocket, count, limit)
                return
        environment = self._environment(client)
        note_error = self._service.operations.errors.inc
        connection = Connection(websocket, environment, self._ask_mcp, client, self._service.rates, note_error)
        self._open.add(connection)
        self._open_of[client.address] += 1
        try:
            await self._service.until_ready()
            await connection.serve()
            if websocket.client_state is WebSocketState.CONNECTED is websocket.application_state:
                await websocket.close()
        except WebSocketDisconnect:
            pass  # The client went away before it was answered.
        finally:
            self._open.discard(connection)
            self._open_of[client.address] -= 1
            if not self._open_of[client.address]:
                del self._open_of[client.address]
            await self._end(environment, client)

    async def _refuse(self, websocket: WebSocket, count: int, limit: int) -> None:
        full = SessionCapacityError(active_sessions=count, max_sessions=limit)
        counts = {"active_sessions": full.active_sessions, "max_sessions": full.max_sessions}
        await websocket.send_text(error_frame(WSErrorCode.CAPACITY_REACHED, str(full), **counts))
        await websocket.close()

    async def _end(self, environment: LLMServeEnvironment, client: Client) -> None:
        """Store what was played. If the store is away, the record of an episode whose client has gone is lost."""
        try:
            await self._service.in_thread(client, environment.close)
        except (StoreUnavailableError, TooManyWaitingError) as error:
            self._service.note_store_error("the end of a WebSocket")
            log.warning("an episode played over a WebSocket is not kept: %s", error)

    async def close_idle(self) -> None:
        """Close connections that have sent nothing for the allowed time, for as long as the server runs."""
        limit_s = self._service.settings.websocket_idle_s
        while True:
            await asyncio.sleep(max(limit_s / 4, MIN_CHECK_INTERVAL_S))
            now_s = asyncio.get_running_loop().time()
            for connection in [one for one in self._open if now_s - one.last_message_at_s > limit_s]:
                log.info("closing a WebSocket that has been idle for %g s", limit_s)
                await connection.close()
