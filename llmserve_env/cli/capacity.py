"""Find the cheapest fleet and configuration that meet a task's SLOs, for each tier and GPU type."""

from __future__ import annotations

import argparse
from typing import Any

from llmserve_env.cli.running import add_answer_arguments, add_runner_arguments, protocol_of, runner_of

NO_FLEET = 1
"""Exit status where no fleet keeps the promises."""


def add_parser(subparsers: Any) -> None:
    """Add `capacity` to the main command."""
    parser = subparsers.add_parser("capacity", help="find the cheapest GPUs that an SLO needs", description=__doc__)
    parser.add_argument("task", metavar="TASK", help="a YAML file, or the id of a shipped task")
    add_answer_arguments(parser)
    add_runner_arguments(parser)
    parser.set_defaults(run=run_capacity)


def run_capacity(args: argparse.Namespace) -> int:
    """`llmserve capacity`."""
    from llmserve_env.planning.answer.store import answer_for
    from llmserve_env.planning.capacity.text import capacity_text
    from llmserve_env.tasks.catalog import load_task

    protocol, task = protocol_of(args), load_task(args.task)
    with runner_of(args) as runner:
        answer = answer_for(task, protocol, runner)
    print(capacity_text(task, answer))
    return 0 if answer.recommended is not None else NO_FLEET
