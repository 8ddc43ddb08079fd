"""What every HTTP request passes: an id, a client, a body limit, a rate limit, a log line and a measurement."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
import uuid
from typing import TYPE_CHECKING, NoReturn

from starlette.requests import ClientDisconnect

from llmserve_env.server.clients import identify
from llmserve_env.server.limits import PROBES, Turns, retry_after

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from llmserve_env.server.limits import Rates
    from llmserve_env.server.operations import Operations
    from llmserve_env.server.settings import Settings

log = logging.getLogger("llmserve.requests")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
REQUEST_ID = re.compile(r"[!-~]{1,100}")
"""Without spaces, so that an id in a line of the log is one word."""
SMALL_BODY_BYTES = 65_536
"""Enough for anything but a log, and parsed within milliseconds whatever is wrong with it."""
LOGS_PATH = "/grader"
REQUESTS_AT_ONCE = 128
"""Requests of one address that may begin at once. A step takes a quarter of a millisecond, others up to a few."""
HELD_S = 0.5
"""Delay of the answer to a request beyond a limit: a thousand connections that are refused without delay and ask again
without delay would leave little time for others."""
CLIENT_GONE = 499
"""What proxies note for a request whose client went away before it was answered."""
WORKER_HEADER = "x-worker"


def _shown(path: str) -> str:
    """A path for the log, in one line."""
    return path[:200].encode("unicode_escape").decode()


class BodyRefusedError(Exception):
    """More bytes arrived than are allowed, or not in the time allowed."""


class Gatekeeper:
    """The ASGI middleware; each request is an `_Exchange`."""

    def __init__(self, app: ASGIApp, settings: Settings, operations: Operations, rates: Rates) -> None:
        self._app, self._operations, self._rates = app, operations, rates
        self.max_body, self._logs = settings.max_body_bytes, settings.log_requests
        self.turns = Turns(REQUESTS_AT_ONCE)
        self._body_timeout_s, self._trusted_hops = settings.body_timeout_s, settings.trusted_hops
        self._worker = (WORKER_HEADER.encode(), str(os.getpid()).encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request and its answer."""

    def __init__(self, gate: Gatekeeper, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate, self._scope, self._receive, self._send = gate, scope, receive, send
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        self._id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex[:16]
        self._max_body = gate.max_body if scope["path"] == LOGS_PATH else min(gate.max_body, SMALL_BODY_BYTES)
        self._declared = headers.get(b"content-length", b"0")
        self._status, self._received, self._has_started, self._is_complete = 0, 0, False, False
        self._body_status, self._body_due_at_s = 0, 0.0

    async def run(self) -> None:
        scope, gate = self._scope, self._gate
        started, path = time.perf_counter(), scope["path"]
        client = identify(scope, gate._trusted_hops)
        scope.setdefault("state", {}).update(request_id=self._id, client=client)
        await gate.turns.wait(client.address)
        wait_s = gate._rates.for_path(path).wait_s(client.address)
        if wait_s > 0.0:
            gate._operations.limited.inc()
            await asyncio.sleep(HELD_S)
        if wait_s > 0.0 and path not in PROBES:
            await self._refuse(429, "too many requests; wait and try again", {"retry-after": retry_after(wait_s)})
        elif self._declared.isdigit() and len(self._declared) < 20 and int(self._declared) > self._max_body:
            await self._refuse(413, f"the body may have {self._max_body} bytes at most")
        else:
            await self._pass_on()
        self._note(path, client.address, time.perf_counter() - started)

    async def _pass_on(self) -> None:
        try:
            await self._gate._app(self._scope, self._limited_receive, self._noted_send)
        except BodyRefusedError as error:
            if not self._has_started:
                await self._refuse(self._body_status, str(error))
        except ClientDisconnect:
            # Nobody is left to be answered.
            self._status = self._status or CLIENT_GONE
        except Exception:
            # The outermost handler: a bug ends one request. Raised further, Starlette and uvicorn would log it again.
            log.exception(
                "unexpected error in %s %s id=%s", self._scope["method"], _shown(self._scope["path"]), self._id
            )
            self._gate._operations.errors.inc()
            if not self._has_started:
                await self._refuse(500, f"internal error; the server's log has the details under {self._id}")

    async def _limited_receive(self) -> Message:
        gate = self._gate
        if self._is_complete:
            # What comes after the body is the client's departure, which may take as long as the answer does.
            return await self._receive()
        loop = asyncio.get_running_loop()
        self._body_due_at_s = self._body_due_at_s or loop.time() + gate._body_timeout_s
        try:
            async with asyncio.timeout_at(self._body_due_at_s):
                message = await self._receive()
        except TimeoutError:
            self._refuse_body(408, f"the body must arrive within {gate._body_timeout_s:g} s")
        if message["type"] == "http.request":
            self._is_complete = not message.get("more_body", False)
            self._received += len(message.get("body", b""))
            if self._received > self._max_body:
                self._refuse_body(413, f"the body may have {self._max_body} bytes at most")
        return message

    def _refuse_body(self, status: int, reason: str) -> NoReturn:
        self._body_status = status
        raise BodyRefusedError(reason)

    async def _noted_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            # FastAPI answers 400 to whatever goes wrong while it reads a body.
            if self._body_status:
                message["status"] = self._body_status
            self._status, self._has_started = message["status"], True
            named = (b"x-request-id", self._id.encode("latin-1"))
            message["headers"] = [*message.get("headers", ()), named, self._gate._worker]
        await self._send(message)

    async def _refuse(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"detail": detail}).encode()
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        lines = [(name.encode(), value.encode()) for name, value in fields.items()]
        await self._noted_send({"type": "http.response.start", "status": status, "headers": lines})
        await self._send({"type": "http.response.body", "body": body})

    def _note(self, path: str, client: str, took_s: float) -> None:
        # The route's pattern, not the path, so that made-up paths cannot multiply the metrics.
        route = getattr(self._scope.get("route"), "path", "other")
        method = self._scope["method"] if self._scope["method"] in METHODS else "other"
        self._gate._operations.note_request(method, route, self._status, took_s)
        # Refusals are counted; a line for each would let a flood of requests fill the disk.
        if self._gate._logs and self._status != 429:
            log.info(
                "%s %s %d %.1f ms id=%s client=%s",
                self._scope["method"],
                _shown(path),
                self._status,
                1e3 * took_s,
                self._id,
                client,
            )
