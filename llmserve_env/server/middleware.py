"""What every HTTP request passes: an id, a body limit, a rate limit, a log line and a measurement."""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from typing import TYPE_CHECKING

from llmserve_env.server.limits import RateLimit, retry_after

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from llmserve_env.server.operations import Operations
    from llmserve_env.server.settings import Settings

log = logging.getLogger("llmserve.requests")
EXPENSIVE = frozenset({"/grader", "/baseline"})
FREE = frozenset({"/health", "/metrics"})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MAX_REQUEST_ID = 100
WORKER_HEADER = "x-worker"


class BodyTooLargeError(Exception):
    """More bytes arrived than are allowed."""


class Gatekeeper:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, settings: Settings, operations: Operations) -> None:
        self._app, self._operations = app, operations
        self._max_body, self._logs = settings.max_body_bytes, settings.log_requests
        self._worker = (WORKER_HEADER.encode(), str(os.getpid()).encode())
        per_s = settings.expensive_per_min / 60.0
        self._steps = RateLimit(settings.steps_per_s, 2.0 * settings.steps_per_s)
        self._plays = RateLimit(settings.plays_per_s, 2.0 * settings.plays_per_s)
        self._others = RateLimit(settings.requests_per_s, 2.0 * settings.requests_per_s)
        self._expensive = RateLimit(per_s, settings.expensive_per_min / 2.0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await _Exchange(self, scope, receive, send).run()

    def limit_for(self, path: str) -> RateLimit | None:
        if path in FREE:
            return None
        if path in EXPENSIVE:
            return self._expensive
        return self._steps if path == "/step" else self._plays if path == "/play" else self._others


class _Exchange:
    """One request and its answer."""

    def __init__(self, gate: Gatekeeper, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate, self._scope, self._receive, self._send = gate, scope, receive, send
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        is_usable = 0 < len(given) <= MAX_REQUEST_ID and given.isascii() and given.isprintable()
        self._id = given if is_usable else uuid.uuid4().hex[:16]
        self._declared = headers.get(b"content-length", b"0")
        self._status, self._received, self._has_started = 0, 0, False

    async def run(self) -> None:
        scope, gate = self._scope, self._gate
        started, path = time.perf_counter(), scope["path"]
        scope.setdefault("state", {})["request_id"] = self._id
        client = scope["client"][0] if scope.get("client") else ""
        limit = gate.limit_for(path)
        wait_s = limit.wait_s(client) if limit else 0.0
        if wait_s > 0.0:
            gate._operations.limited.inc()
            await self._refuse(429, "too many requests; wait and try again", {"retry-after": retry_after(wait_s)})
        elif self._declared.isdigit() and len(self._declared) < 20 and int(self._declared) > gate._max_body:
            await self._refuse(413, f"the body may have {gate._max_body} bytes at most")
        else:
            try:
                await gate._app(scope, self._limited_receive, self._noted_send)
            except BodyTooLargeError:
                if not self._has_started:
                    await self._refuse(413, f"the body may have {gate._max_body} bytes at most")
        self._note(path, client, time.perf_counter() - started)

    async def _limited_receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._gate._max_body:
                raise BodyTooLargeError
        return message

    async def _noted_send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self._received > self._gate._max_body:
                message["status"] = 413
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
        if self._gate._logs:
            log.info(
                "%s %s %d %.1f ms id=%s client=%s",
                self._scope["method"],
                path[:200].encode("unicode_escape").decode(),
                self._status,
                1e3 * took_s,
                self._id,
                client,
            )
