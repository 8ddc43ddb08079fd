"""Play reference agents on one fixed seed, in process or on a server, and print the report of `GET /baseline`."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from llmserve_env.cli.language_model import add_llm_arguments, llm_settings

MODES = ("deterministic", "openai")
RUNTIMES = ("in-process", "http")


def add_parser(subparsers: Any) -> None:
    """Add `baseline` to the main command."""
    parser = subparsers.add_parser("baseline", help="play reference agents on one seed", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="static and heuristic, or a language model")
    parser.add_argument("--runtime", choices=RUNTIMES, default=RUNTIMES[0])
    parser.add_argument("--base-url", default="http://localhost:7860", metavar="URL", help="server of runtime http")
    parser.add_argument("--task", nargs="+", metavar="TASK", help="ids or numbers (default: all)")
    parser.add_argument("--seed", type=int, metavar="N", help="default: 42")
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON to write (default: stdout)")
    add_llm_arguments(parser, base_url=False)
    parser.set_defaults(run=run_baseline)


def run_baseline(args: argparse.Namespace) -> int:
    """Play, and print or write the report."""
    from llmserve_env.client import LLMServeEnv
    from llmserve_env.evaluation.baseline import BASELINE_SEED, BaselineOptions, baseline_report
    from llmserve_env.tasks.catalog import BENCHMARK, load_task

    # `--base-url` is the address of the environment's server; that of the model is in API_BASE_URL.
    llm = llm_settings(argparse.Namespace(**{**vars(args), "base_url": None})) if args.mode == "openai" else None
    tasks = tuple(load_task(name) for name in args.task or BENCHMARK)
    seed = BASELINE_SEED if args.seed is None else args.seed
    with ExitStack() as clients:
        env = clients.enter_context(closing(LLMServeEnv.from_url(args.base_url))) if args.runtime == "http" else None
        report = baseline_report(BaselineOptions(tasks, seed, args.mode, env, llm))
    text = json.dumps(report, indent=2)
    if args.output is None:
        print(text)
    else:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        args.output.write_text(f"{text}\n", encoding="utf-8")
    return 0
