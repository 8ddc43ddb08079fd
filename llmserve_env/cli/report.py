"""Write one self-contained page about a task: traffic, capacity, cost, best constant, adaptive policy, vLLM flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llmserve_env.cli.running import add_fleet_arguments, add_runner_arguments, runner_of
from llmserve_env.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add `report` to the main command."""
    parser = subparsers.add_parser("report", help="write an HTML report about a task", description=__doc__)
    add_fleet_arguments(parser)
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE.html")
    parser.add_argument("--episodes", type=int, default=4, metavar="N", help="evaluation seeds (default: 4)")
    parser.add_argument("--trials", type=int, default=64, metavar="N", help="constants to try (default: 64)")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_report)


def run_report(args: argparse.Namespace) -> int:
    """`llmserve report`."""
    from llmserve_env.planning.report.gather import ReportOptions, gather
    from llmserve_env.planning.report.page import report_page
    from llmserve_env.tasks.catalog import load_task

    _check(args)
    task = load_task(args.task)
    options = ReportOptions(
        target=args.target,
        num_episodes=args.episodes,
        num_configurations=args.trials,
        max_replicas=args.max_replicas,
    )
    with runner_of(args) as runner:
        data = gather(task, options, runner)
    args.output.write_text(report_page(data, _command(args)), encoding="utf-8")
    print(f"written to {args.output}")
    return 0


def _check(args: argparse.Namespace) -> None:
    if not 0.0 < args.target <= 1.0:
        raise ConfigError(f"--target is a share of requests above 0 and up to 1, as in 0.95; got {args.target:g}")
    for name in ("episodes", "trials", "max_replicas"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1; got {getattr(args, name)}")
    if not args.output.parent.is_dir():
        raise ConfigError(f"{args.output}: the folder {args.output.parent} does not exist; create it first")


def _command(args: argparse.Namespace) -> str:
    name = Path(args.task).name
    return f"llmserve report {name} --target {args.target:g} --episodes {args.episodes} --trials {args.trials}"
