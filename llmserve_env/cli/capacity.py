"""Find how many GPUs meet a task's SLOs, for each tier and GPU type, and what they cost."""

from __future__ import annotations

import argparse
from typing import Any

from llmserve_env.cli.running import add_fleet_arguments, add_runner_arguments, runner_of
from llmserve_env.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add `capacity` to the main command."""
    parser = subparsers.add_parser(
        "capacity", help="find the GPUs that an SLO needs and their cost", description=__doc__
    )
    add_fleet_arguments(parser)
    parser.add_argument("--profile", nargs="+", metavar="NAME", help="profiles to compare (default: the task's)")
    parser.add_argument("--episodes", type=int, default=3, metavar="N", help="seeds per fleet (default: 3)")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_capacity)


def run_capacity(args: argparse.Namespace) -> int:
    """`llmserve capacity`."""
    from llmserve_env.planning.capacity.checking import active_tiers
    from llmserve_env.planning.capacity.replicas import find_capacity
    from llmserve_env.planning.capacity.text import capacity_text
    from llmserve_env.tasks.catalog import load_task

    if not 0.0 < args.target <= 1.0:
        raise ConfigError(f"--target is a share of requests above 0 and up to 1, as in 0.95; got {args.target:g}")
    for name, value in (("--max-replicas", args.max_replicas), ("--episodes", args.episodes)):
        if value < 1:
            raise ConfigError(f"{name} must be at least 1; got {value}")
    task = load_task(args.task)
    found = []
    with runner_of(args) as runner:
        runner.progress.stage(task.id)
        for profile in args.profile or [task.deployment.profile]:
            found += find_capacity(
                task,
                tiers=active_tiers(task),
                target=args.target,
                profile=profile,
                max_replicas=args.max_replicas,
                num_episodes=args.episodes,
                runner=runner,
            )
    print(capacity_text(task, found))
    return 0
