"""An address that is not that of our server is an error that says so."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from llmserve_env import LLMServeEnv
from llmserve_env.errors import ServerError

ANSWERS = {
    "/page/reset": (200, "text/html", b"<html>Welcome</html>"),
    "/web/reset": (404, "application/json", b'{"detail":"Not Found"}'),
}


@pytest.fixture(scope="module")
def other_server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, kind, body = ANSWERS[self.path]
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/page", "/web"])
def test_an_address_of_something_else_is_an_error_that_says_so(other_server: str, path: str) -> None:
    with pytest.raises(ServerError, match=rf"{path}/reset answered \d+, but not as an LLMServeEnv server does"):
        LLMServeEnv(other_server + path).reset(task_id="static_workload")
