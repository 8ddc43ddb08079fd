"""`POST /mcp`: OpenEnv's endpoint, behind checks that it lacks and with a limit of sessions per client.

Each session of `/mcp` takes one of OpenEnv's threads, so few are allowed; WebSockets have a separate limit.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Message, Receive
from starlette.websockets import WebSocket

from llmserve_env.server.clients import Client, identify
from llmserve_env.server.limits import RateLimit
from llmserve_env.server.routes.control import client_of, json_response
from llmserve_env.server.settings import Settings

CREATE, CLOSE = "openenv/session/create", "openenv/session/close"
INVALID_REQUEST, INVALID_PARAMS, REFUSED = -32600, -32602, -32000
PARSE_ERROR = -32700
NOT_JSON = "a request must be JSON in UTF-8, without NaN"
JSON = {"content-type": "application/json"}
MCP_PATH = "/mcp"
GOING_AWAY, TRY_AGAIN_LATER = 1001, 1013


def _error(code: int, message: str, request_id: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def _problem(request: Any) -> dict[str, Any] | None:
    """What is wrong with a request, as an answer; None if OpenEnv can be asked."""
    if not isinstance(request, dict):
        return _error(INVALID_REQUEST, "a request must be an object")
    request_id = request.get("id")
    if isinstance(request_id, bool) or not isinstance(request_id, str | int | float | None):
        return _error(INVALID_REQUEST, "id must be text, a number or null")
    params = request.get("params")
    if params is None:
        return None
    if not isinstance(params, dict):
        return _error(INVALID_PARAMS, "params must be an object", request_id)
    if not isinstance(params.get("session_id"), str | None):
        return _error(INVALID_PARAMS, "session_id must be text", request_id)
    return None


def ended_when_idle(receive: Receive, limit_s: float) -> Receive:
    """A WebSocket's `receive` that reports the end of the connection when no message has come for `limit_s`."""
    has_begun = False

    async def receive_or_end() -> Message:
        nonlocal has_begun
        # The first message is the handshake.
        allowed_s, has_begun = limit_s if has_begun else None, True
        try:
            async with asyncio.timeout(allowed_s):
                return await receive()
        except TimeoutError:
            return {"type": "websocket.disconnect", "code": GOING_AWAY}

    return receive_or_end


class Mcp:
    """OpenEnv's endpoint, asked through its application; `is_open` says whether it still has a session."""

    def __init__(self, openenv: ASGIApp, settings: Settings, rate: RateLimit, is_open: Callable[[str], bool]) -> None:
        self._openenv, self._transport = openenv, httpx.ASGITransport(openenv)
        self._max_per_client, self._trusted_hops = settings.max_mcp_sessions_per_client, settings.trusted_hops
        self._rate, self._is_open, self._idle_s = rate, is_open, settings.websocket_idle_s
        self._address_of: dict[str, str] = {}
        self._unnamed: Counter[str] = Counter()
        """Sessions of WebSockets, and those that are being made, by address."""

    async def answer(self, body: bytes, client: Client) -> dict[str, Any]:
        """The answer to the body of a request."""
        try:
            request = json.loads(body)
            # Half a surrogate pair and NaN are read, but cannot be sent back.
            json.dumps(request, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            return _error(PARSE_ERROR, NOT_JSON)
        return await self.ask(request, client)

    async def ask(self, request: Any, client: Client) -> dict[str, Any]:
        """What OpenEnv answers to a request, if it is one and the client may have what it asks for."""
        problem = _problem(request)
        if problem is not None:
            return problem
        if request.get("method") != CREATE:
            return await self._pass_on(request)
        address = client.address
        if self._held_by(address) >= self._max_per_client:
            text = f"you have {self._max_per_client} sessions open already; close one with {CLOSE}"
            return _error(REFUSED, text, request.get("id"))
        # One that is being made counts, or a client could ask for many at once.
        self._unnamed[address] += 1
        try:
            answer = await self._pass_on(request)
            result = answer.get("result")
            if isinstance(result, dict) and "session_id" in result:
                self._address_of[result["session_id"]] = address
            return answer
        finally:
            self._unnamed[address] -= 1

    async def _pass_on(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            content = json.dumps(request, allow_nan=False)
        except ValueError:
            return _error(PARSE_ERROR, NOT_JSON)
        async with httpx.AsyncClient(transport=self._transport, base_url="http://openenv", headers=JSON) as asking:
            answer: dict[str, Any] = (await asking.post(MCP_PATH, content=content)).json()
        return answer

    async def connect(self, websocket: WebSocket) -> None:
        """A WebSocket on `/mcp`, which holds a session of OpenEnv's for as long as it is open."""
        address = identify(websocket.scope, self._trusted_hops).address
        if self._held_by(address) >= self._max_per_client:
            await websocket.close(TRY_AGAIN_LATER, "too many sessions of /mcp")
            return
        self._unnamed[address] += 1
        try:
            await self._openenv(websocket.scope, self.watched(websocket.receive, address), websocket.send)
        finally:
            self._unnamed[address] -= 1

    def watched(self, receive: Receive, address: str) -> Receive:
        """A WebSocket's `receive` that hands over each message in turn, and ends a connection that sends none."""
        return self._rate.paced(ended_when_idle(receive, self._idle_s), address)

    def _held_by(self, address: str) -> int:
        self._address_of = {name: owner for name, owner in self._address_of.items() if self._is_open(name)}
        self._unnamed = +self._unnamed
        return Counter(self._address_of.values())[address] + self._unnamed[address]


def mcp_routes(mcp: Mcp) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["MCP"])

    @router.post(MCP_PATH, summary="OpenEnv's JSON-RPC endpoint")
    async def ask(request: Request) -> Response:
        """Answer as OpenEnv does; anything but a JSON-RPC request gets the protocol's error."""
        answer = await mcp.answer(await request.body(), client_of(request))
        return json_response(json.dumps(answer).encode())

    router.add_api_websocket_route(MCP_PATH, mcp.connect)
    return router
