"""A small HTTP server on loopback that speaks OpenAI's streaming protocol, and misbehaves on request.

The official client really talks to it. Each request is answered by a script; scripts never wait for the clock, only for
events that the test or the end of the server sets.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "small"
KEY = "secret"
Script = Callable[["Exchange"], None]


@dataclass
class StreamingServer:
    """Where to ask, what was asked, and how to let stalled streams go."""

    base_url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    open_streams: int = 0
    most_open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Exchange:
    """One request under way."""

    handler: BaseHTTPRequestHandler
    server: StreamingServer
    asked: dict[str, Any]

    def fail(self, status: int, message: str | None = None, **headers: str) -> None:
        """Answer with an error."""
        body = json.dumps({"error": {"message": message or f"scripted {status}", "type": "test"}}).encode()
        self.handler.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def begin(self) -> None:
        """Begin a stream of server-sent events."""
        self.handler.send_response(200)
        self.handler.send_header("Content-Type", "text/event-stream")
        self.handler.send_header("Connection", "close")
        self.handler.end_headers()

    def event(self, content: Any) -> None:
        """Send one event; text goes as it is."""
        text = content if isinstance(content, str) else json.dumps(content)
        self.handler.wfile.write(f"data: {text}\n\n".encode())
        self.handler.wfile.flush()

    def token(self, text: str = "word ") -> None:
        """Send a chunk with one token."""
        self.event(chunk([{"index": 0, "delta": {"content": text}, "finish_reason": None}]))

    def end(self, completion_tokens: int) -> None:
        """Send the usage, and the mark of the end."""
        usage = {"prompt_tokens": 20, "completion_tokens": completion_tokens, "total_tokens": 20 + completion_tokens}
        self.event({**chunk([]), "usage": usage})
        self.event("[DONE]")


def chunk(choices: list[dict[str, Any]]) -> dict[str, Any]:
    """An event of a stream."""
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": choices}


def answer_all(exchange: Exchange) -> None:
    """As many tokens as were asked for."""
    count = int(exchange.asked["max_completion_tokens"])
    exchange.begin()
    for _ in range(count):
        exchange.token()
    exchange.end(count)


def stall(exchange: Exchange) -> None:
    """Begin, and fall silent."""
    exchange.begin()
    exchange.server.release.wait()


def stall_after_one(exchange: Exchange) -> None:
    """One token, then silence."""
    exchange.begin()
    exchange.token()
    exchange.server.release.wait()


def garbage(exchange: Exchange) -> None:
    """A stream that is no JSON."""
    exchange.begin()
    exchange.event("{this is not json")


def foreign(exchange: Exchange) -> None:
    """A stream of JSON that means nothing."""
    exchange.begin()
    exchange.event({"weather": "fine"})
    exchange.event("[DONE]")


def empty(exchange: Exchange) -> None:
    """A stream without a token."""
    exchange.begin()
    exchange.event("[DONE]")


def broken_off(exchange: Exchange) -> None:
    """A token, and the connection is cut without the end of the stream."""
    exchange.begin()
    exchange.token()
    exchange.handler.connection.close()


@contextmanager
def streaming_server(
    script: Script = answer_all, *, key: str = KEY, models: list[str] | Script | None = None
) -> Iterator[StreamingServer]:
    """Serve `/v1/models` and `/v1/chat/completions` until the block ends."""
    seen: StreamingServer

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            super().setup()
            self.close_connection = True

        def do_GET(self) -> None:
            exchange = Exchange(self, seen, {})
            if callable(models):
                try:
                    return models(exchange)
                except OSError:
                    """The client has gone, which is what the test is about."""
                    return None
            names = [MODEL] if models is None else models
            if self.headers.get("Authorization") != f"Bearer {key}":
                return exchange.fail(401)
            body = json.dumps({"object": "list", "data": [{"id": n, "object": "model"} for n in names]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with seen.lock:
                seen.asked.append(asked)
                seen.headers.append({name.lower(): value for name, value in self.headers.items()})
                seen.open_streams += 1
                seen.most_open = max(seen.most_open, seen.open_streams)
            try:
                script(Exchange(self, seen, asked))
            except (BrokenPipeError, ConnectionResetError, ValueError):
                """The client has gone, which many tests are about."""
            finally:
                with seen.lock:
                    seen.open_streams -= 1

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    seen = StreamingServer(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield seen
    finally:
        seen.release.set()
        server.shutdown()
        thread.join()
        server.server_close()
