"""Search the best constant knobs of a task, for the `tuned` agent."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from llmserve_env.cli.running import task_names
from llmserve_env.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add `tune` to the main command."""
    parser = subparsers.add_parser("tune", help="find the best constant of a task", description=__doc__)
    parser.add_argument("--task", default="all", help="all, or ids, numbers or YAML files separated by commas")
    parser.add_argument(
        "--trials",
        type=int,
        default=160,
        metavar="N",
        help="constants to try before the best is polished (default: 160)",
    )
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="tuning seeds per trial (default: 10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the search")
    parser.add_argument("--dry-run", action="store_true", help="print the constants, keep the file as it is")
    parser.set_defaults(run=run_tune)


def run_tune(args: argparse.Namespace) -> int:
    """Search and record, task by task."""
    from tqdm import tqdm

    try:
        from llmserve_env.tuning.search import record, search
    except ModuleNotFoundError as error:
        raise ConfigError(f"tuning needs {error.name}: make setup-train, or pip install '.[train]'") from error
    from llmserve_env.env.knob_values import mapping_from_knobs
    from llmserve_env.tasks.catalog import load_task

    for name in task_names(args.task):
        with tqdm(unit="trial", desc=name, file=sys.stderr, disable=None) as bar:
            found = search(load_task(name), args.trials, args.episodes, args.seed, bar.update)
        print(f"{name}: score {found.score:.4f} with {mapping_from_knobs(found.knobs)}")
        if not args.dry_run:
            command = (
                f"llmserve tune --task {name} --trials {args.trials} --episodes {args.episodes} --seed {args.seed}"
            )
            record(name, found, command, args.trials, args.episodes)
    return 0
