"""Start a vLLM server that real mode can steer, and run it until interrupted."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `real` to the main command."""
    parser = subparsers.add_parser("real", help="start a live engine for real mode", description=__doc__)
    commands = parser.add_subparsers(dest="real_command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="start a vLLM server with our scheduler")
    start.add_argument(
        "--python", type=Path, required=True, metavar="FILE", help="Python interpreter that has vLLM installed"
    )
    start.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of the model")
    start.add_argument("--folder", type=Path, required=True, metavar="DIR", help="folder for control files and the log")
    start.add_argument("--port", type=int, default=8100)
    start.add_argument("--max-batch-cap", type=int, default=64, metavar="N")
    start.add_argument("--token-budget", type=int, default=2048, metavar="N")
    start.add_argument("--max-model-len", type=int, default=4096, metavar="N")
    start.add_argument("--num-blocks", type=int, default=512, metavar="N", help="KV blocks of 32 tokens")
    start.add_argument(
        "--speculation-depth", type=int, default=0, metavar="N", help="longest n-gram draft (default: no speculation)"
    )
    start.add_argument("extra", nargs="*", metavar="OPTION", help="more options for vLLM, after --")
    start.set_defaults(run=run_start)


def run_start(args: argparse.Namespace) -> int:
    """Start the server, print how to reach it, and wait."""
    from llmserve_env.backends.real.launcher import LaunchOptions, VllmServer

    options = LaunchOptions(
        python=args.python,
        model=args.model,
        folder=args.folder.resolve(),
        port=args.port,
        max_batch_cap=args.max_batch_cap,
        token_budget=args.token_budget,
        max_model_len=args.max_model_len,
        num_blocks=args.num_blocks,
        speculation_depth=args.speculation_depth,
        extra=args.extra,
    )
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A plain kill, too, must take the server along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with VllmServer(options) as server:
        print(f"vLLM is up after {server.started_in_s:.0f} s; its log is {server.log_path}", file=sys.stderr)
        print("export LLMSERVE_MODE=real LLMSERVE_REAL_PROVIDER=vllm")
        print(f"export LLMSERVE_REAL_MODEL={options.served_name} LLMSERVE_REAL_BASE_URL={server.base_url}")
        print(f"export LLMSERVE_REAL_CONTROL_DIR={options.folder}", flush=True)
        server.wait()
    return 0
