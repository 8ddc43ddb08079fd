"""A small OpenAI-compatible HTTP server on loopback with scripted answers: the official client really talks to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Whole:
    """The whole body of an answer with status 200, whatever it is."""

    body: str
    content_type: str = "application/json"


Answer = Callable[[dict[str, Any]], "str | int | dict[str, Any] | Whole"]
"""From the request's JSON: the answer's text, its message or its whole body, or an HTTP status to fail with."""


@dataclass
class OpenAIServer:
    """What was asked so far, and where to ask."""

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def tool_call(name: str, arguments: str) -> dict[str, Any]:
    """A message that calls a tool."""
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


def _completion(model: str, given: str | dict[str, Any], usage: Any) -> dict[str, Any]:
    message = given if isinstance(given, dict) else {"role": "assistant", "content": given}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }


@contextmanager
def openai_server(answer: Answer, usage: Any = USAGE) -> Iterator[OpenAIServer]:
    """Serve `POST /v1/chat/completions` until the block ends; every answer reports this usage."""
    seen: OpenAIServer

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.requests.append({"path": self.path, **asked})
            seen.keys.append(self.headers.get("Authorization", ""))
            given = answer(asked)
            status = 200
            if isinstance(given, Whole):
                whole = given
            elif isinstance(given, int):
                status, whole = given, Whole('{"error": {"message": "scripted failure", "type": "test"}}')
            else:
                whole = Whole(json.dumps(_completion(asked["model"], given, usage)))
            data = whole.body.encode()
            self.send_response(status)
            self.send_header("Content-Type", whole.content_type)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    seen = OpenAIServer(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
