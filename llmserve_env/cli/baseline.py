"""Play reference agents on one fixed seed, in process or on a server, and print the report of `GET /baseline`."""

from __future__ import annotations

import argparse
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `baseline` to the main command."""
    from llmserve_env.evaluation.baseline_options import add_baseline_arguments

    parser = subparsers.add_parser("baseline", help="play reference agents on one seed", description=__doc__)
    add_baseline_arguments(parser)
    parser.set_defaults(run=run_baseline)


def run_baseline(args: argparse.Namespace) -> int:
    """Play and print or write the report."""
    from llmserve_env.client import LLMServeEnv
    from llmserve_env.evaluation.baseline import baseline_from_arguments

    text = baseline_from_arguments(args, LLMServeEnv.from_url)
    if text is not None:
        print(text)
    return 0
