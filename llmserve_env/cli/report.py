"""Write one self-contained page about a task: traffic, cheapest fleet, configuration, sensitivity and vLLM flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llmserve_env.cli.running import add_answer_arguments, add_runner_arguments, protocol_of, runner_of
from llmserve_env.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add `report` to the main command."""
    parser = subparsers.add_parser("report", help="write an HTML report about a task", description=__doc__)
    parser.add_argument("task", metavar="TASK", help="a YAML file, or the id of a shipped task")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE.html")
    add_answer_arguments(parser)
    add_runner_arguments(parser)
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    """`llmserve report`."""
    from llmserve_env.planning.report.gather import gather
    from llmserve_env.planning.report.page import report_page
    from llmserve_env.tasks.catalog import load_task

    protocol = protocol_of(args)
    if not args.output.parent.is_dir():
        raise ConfigError(f"{args.output}: the folder {args.output.parent} does not exist; create it first")
    task = load_task(args.task)
    with runner_of(args) as runner:
        data = gather(task, protocol, runner)
    args.output.write_text(report_page(data, _command(args)), encoding="utf-8")
    print(f"written to {args.output}")
    return 0


def _command(args: argparse.Namespace) -> str:
    profiles = f" --profile {' '.join(args.profile)}" if args.profile else ""
    return (
        f"llmserve report {Path(args.task).name} --target {args.target:g} --confidence {args.confidence:g} "
        f"--search-episodes {args.search_episodes} --episodes {args.episodes}{profiles}"
    )
