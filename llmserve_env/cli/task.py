"""List tasks, check a task, and freeze the references of its score."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add `task` and its subcommands to the main command."""
    parser = subparsers.add_parser("task", help="list, check and freeze tasks", description=__doc__)
    commands = parser.add_subparsers(dest="task_command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list tasks by suite", description="List every task that has an id.")
    listing.set_defaults(run=run_list)
    check = commands.add_parser(
        "check",
        help="validate a task and show its load, feasibility and the knobs that matter",
        description="Validate a task file and simulate it briefly: load against capacity, whether the SLOs can be met, "
        "and how much each knob changes the outcome.",
    )
    freeze = commands.add_parser(
        "freeze",
        help="compute the references that scores are normalised by",
        description="Compute the floor and optimum of a task's score components and write them beside its file.",
    )
    for one in (check, freeze):
        one.add_argument("tasks", nargs="+", metavar="TASK", help="YAML files, or ids of shipped tasks")
        one.add_argument(
            "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="threads (default: all cores)"
        )
        one.add_argument("--ray-address", metavar="ADDRESS", help="run on a Ray cluster (`local` starts one)")
    check.add_argument("--episodes", type=int, default=3, metavar="N", help="seeds per figure (default: 3)")
    check.set_defaults(run=run_check)
    freeze.add_argument("--seeds", type=int, default=12, metavar="N", help="reference seeds (default: 12)")
    freeze.add_argument(
        "--ceiling-seeds",
        type=int,
        default=4,
        metavar="N",
        help="how many of them the clairvoyant planner plays (default: 4)",
    )
    freeze.set_defaults(run=run_freeze)


def run_list(args: argparse.Namespace) -> int:
    """`llmserve task list`."""
    from llmserve_env.tasks.catalog import known_ids, load_task

    for task in map(load_task, known_ids()):
        print(f"{task.suite:<10}{task.id:<26}{task.gym_id:<36}{task.name}")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """`llmserve task check`."""
    from tqdm import tqdm

    from llmserve_env.cli.running import runner_of
    from llmserve_env.planning.capacity.checking import check_task
    from llmserve_env.planning.capacity.text import check_text
    from llmserve_env.tasks.catalog import load_task

    tasks = [load_task(name) for name in args.tasks]
    with runner_of(args.jobs, args.ray_address) as runner:
        for task in tasks:
            with tqdm(unit="piece", desc=task.id, file=sys.stderr, disable=None, leave=False) as bar:
                found = check_task(task, args.episodes, runner, bar.update)
            print(check_text(task, found))
    return 0


def run_freeze(args: argparse.Namespace) -> int:
    """`llmserve task freeze`."""
    from tqdm import tqdm

    from llmserve_env.cli.running import runner_of
    from llmserve_env.planning.tuning.freezing import freeze
    from llmserve_env.tasks.catalog import load_task

    tasks = [load_task(name) for name in args.tasks]
    with runner_of(args.jobs, args.ray_address) as runner:
        for task in tasks:
            with tqdm(unit="piece", desc=task.id, file=sys.stderr, disable=None) as bar:
                path = freeze(
                    task,
                    num_seeds=args.seeds,
                    num_ceiling_seeds=args.ceiling_seeds,
                    runner=runner,
                    progress=bar.update,
                )
            print(f"{task.id}: references written to {path}")
    return 0
