"""`llmserve serve`: the environment over HTTP and WebSocket, and its page."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `serve` to the main command."""
    parser = subparsers.add_parser("serve", help="serve the environment and its page", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, default=7860, help="default: 7860")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.set_defaults(run=run_serve)


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from llmserve_env.server.app import serve

    serve(arguments.host, [arguments.port], log_level=arguments.log_level)
    return 0
