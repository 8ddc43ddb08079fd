"""Let a language model play every task, with one line on stdout per event.

Reads API_BASE_URL, MODEL_NAME and HF_TOKEN or OPENAI_API_KEY; any OpenAI-compatible API will do.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from llmserve_env.cli.language_model import add_llm_arguments, llm_settings
from llmserve_env.cli.running import named_tasks, script
from llmserve_env.errors import LLMServeError

TIME_LIMIT_S = 1000.0
"""No step begins after this. One more call may take three timeouts, and everything must fit into 20 minutes."""
DECIDE_EVERY = 5


def add_arguments(parser: Any) -> None:
    """Options of `inference.py` and `llmserve inference`."""
    parser.add_argument("--task", default="all", help="all, or ids, numbers or YAML files separated by commas")
    parser.add_argument("--agent", default="llm", metavar="AGENT", help="agent that plays (default: llm)")
    parser.add_argument("--seed", type=int, default=42, metavar="N")
    parser.add_argument(
        "--time-limit-s",
        type=float,
        default=TIME_LIMIT_S,
        metavar="S",
        help=f"time limit for all tasks (default: {TIME_LIMIT_S:g})",
    )
    add_llm_arguments(parser, decide_every=DECIDE_EVERY)
    parser.set_defaults(run=run_inference)


def add_parser(subparsers: Any) -> None:
    """Add `inference` to the main command."""
    add_arguments(subparsers.add_parser("inference", help="let a language model play", description=__doc__))


def main(argv: Sequence[str] | None = None) -> int:
    """`python inference.py`."""
    return script(add_arguments, "inference.py", __doc__, argv)


def run_inference(args: argparse.Namespace) -> int:
    """Play the tasks one after the other; the named agent acts, or the episode ends."""
    from llmserve_env.agents.own.loading import load_agent
    from llmserve_env.evaluation.protocol import lines_of_none, play_lines

    options: dict[str, Any] = {}
    label = args.agent
    if args.agent == "llm":
        settings = llm_settings(args)
        options, label = {"settings": settings}, settings.model
    tasks = named_tasks(args.task)
    try:
        agent = load_agent(args.agent, **options)
    except LLMServeError:
        for line in lines_of_none([task.id for task in tasks], label):
            print(line, flush=True)
        raise
    deadline_s = time.monotonic() + args.time_limit_s
    for task in tasks:
        for line in play_lines(agent, task, args.seed, label, deadline_s):
            print(line, flush=True)
    if args.agent == "llm":
        print(f"usage: {agent.usage.report(options['settings'])}", file=sys.stderr)  # type: ignore[attr-defined]
    return 0
