"""List tasks, check a task, and freeze the references of its score."""

from __future__ import annotations

import argparse
from typing import Any

from llmserve_env.cli.running import add_answer_arguments, add_runner_arguments, protocol_of, runner_of


def add_parser(subparsers: Any) -> None:
    """Add `task` and its subcommands to the main command."""
    parser = subparsers.add_parser("task", help="list, check and freeze tasks", description=__doc__)
    commands = parser.add_subparsers(dest="task_command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="list tasks by suite", description="List every task that has an id.")
    listing.set_defaults(run=run_list)
    check = commands.add_parser(
        "check",
        help="validate a task and show its load, whether its SLOs are met, and the knobs that matter",
        description="Validate a task file and simulate it: load against capacity, whether its fleet keeps its SLOs, "
        "the cheapest fleet that does, and how much each knob changes the outcome.",
    )
    freeze = commands.add_parser(
        "freeze",
        help="compute the references that scores are normalised by",
        description="Compute the floor and optimum of a task's score components and write them beside its file.",
    )
    calibrate = commands.add_parser(
        "calibrate",
        help="measure the constants of the plan's scores",
        description="Measure what the plan's score of a core task is calibrated by, and write it into its references.",
    )
    for one in (check, freeze, calibrate):
        one.add_argument("tasks", nargs="+", metavar="TASK", help="YAML files, or ids of shipped tasks")
        add_runner_arguments(one)
    add_answer_arguments(check)
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
    calibrate.set_defaults(run=run_calibrate)


def run_list(args: argparse.Namespace) -> int:
    """`llmserve task list`."""
    from llmserve_env.tasks.catalog import known_ids, load_task

    for task in map(load_task, known_ids()):
        print(f"{task.suite:<10}{task.id:<26}{task.gym_id:<36}{task.name}")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """`llmserve task check`."""
    from llmserve_env.planning.answer.store import answer_for
    from llmserve_env.planning.capacity.checking import check_task
    from llmserve_env.planning.capacity.text import check_text
    from llmserve_env.tasks.catalog import load_task

    tasks, protocol = [load_task(name) for name in args.tasks], protocol_of(args)
    with runner_of(args) as runner:
        for task in tasks:
            answer = answer_for(task, protocol, runner)
            print(check_text(task, answer, check_task(task, answer, protocol, runner)))
    return 0


def run_freeze(args: argparse.Namespace) -> int:
    """`llmserve task freeze`."""
    from llmserve_env.planning.freezing import freeze
    from llmserve_env.tasks.catalog import load_task

    tasks = [load_task(name) for name in args.tasks]
    with runner_of(args) as runner:
        for task in tasks:
            runner.progress.stage(task.id)
            path = freeze(task, num_seeds=args.seeds, num_ceiling_seeds=args.ceiling_seeds, runner=runner)
            print(f"{task.id}: references written to {path}")
    return 0


def run_calibrate(args: argparse.Namespace) -> int:
    """`llmserve task calibrate`."""
    from llmserve_env.planning.plan_calibration import calibrate
    from llmserve_env.tasks.catalog import load_task

    tasks = [load_task(name) for name in args.tasks]
    with runner_of(args) as runner:
        for task in tasks:
            runner.progress.stage(task.id)
            print(f"{task.id}: the plan's constants written to {calibrate(task, runner)}")
    return 0
