"""Play agents on tasks and report scores with intervals."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from llmserve_env.cli.running import script, task_names, write_text
from llmserve_env.errors import ConfigError

ENGINES = ("local", "ray")


def add_arguments(parser: Any) -> None:
    """Options of `evaluate.py` and `llmserve evaluate`."""
    parser.add_argument("--agent", nargs="+", default=["ppo"], metavar="NAME", help="one or more agents (default: ppo)")
    parser.add_argument("--task", default="all", help="all, or ids, numbers or YAML files separated by commas")
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="seeds per task (default: 20)")
    parser.add_argument("--seed-start", type=int, metavar="N", help="first seed (default: that of the reported range)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON (to stdout without FILE)")
    parser.add_argument(
        "--csv", nargs="?", const="-", metavar="FILE", help="write one CSV row per episode (to stdout without FILE)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML report")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="threads (default: all cores)"
    )
    parser.add_argument("--engine", choices=ENGINES, default="local", help="where episodes are played")
    parser.add_argument(
        "--ray-address", metavar="ADDRESS", help="play on a Ray cluster (`local` starts one); implies --engine ray"
    )
    parser.set_defaults(run=run_evaluate, program="llmserve evaluate")


def add_parser(subparsers: Any) -> None:
    """Add `evaluate` to the main command."""
    add_arguments(subparsers.add_parser("evaluate", help="play agents and report scores", description=__doc__))


def main(argv: Sequence[str] | None = None) -> int:
    """`python evaluate.py`."""
    return script(_script_arguments, "evaluate.py", __doc__, argv)


def _script_arguments(parser: Any) -> None:
    add_arguments(parser)
    parser.set_defaults(program="python evaluate.py")


def run_evaluate(args: argparse.Namespace) -> int:
    """Play, print, and write what was asked for."""
    from llmserve_env.evaluation.report import as_csv, as_json, provenance, tabulate, text_table

    tasks = task_names(args.task)
    seeds = evaluation_seeds(args.episodes, args.seed_start)
    results = play_all(args, args.agent, tasks, seeds)
    table, made = tabulate(results), provenance(args.program + _options(args), seeds, tasks)
    if "-" not in (args.json, args.csv):
        print(text_table(table))
    if args.json:
        write_text(args.json, json.dumps(as_json(table, made), indent=2))
    if args.csv:
        write_text(args.csv, as_csv(results).rstrip("\n"))
    if args.html:
        from llmserve_env.evaluation.html import html_report

        write_text(args.html, html_report(table, results, made, args.agent))
    return 0


def _options(args: argparse.Namespace) -> str:
    start = "" if args.seed_start is None else f" --seed-start {args.seed_start}"
    return f" --agent {' '.join(args.agent)} --task {args.task} --episodes {args.episodes}{start}"


def evaluation_seeds(episodes: int, start: int | None) -> range:
    """The reported range, or others by their first seed."""
    from llmserve_env.env.episode import MAX_SEED
    from llmserve_env.evaluation.rollout import SEED_RANGES

    if episodes < 1:
        raise ConfigError(f"--episodes must be at least 1; got {episodes}")
    first = SEED_RANGES["evaluation"].start if start is None else start
    if not 0 <= first <= MAX_SEED - episodes + 1:
        raise ConfigError(f"--seed-start must leave {episodes} seeds in 0..{MAX_SEED}; got {first}")
    return range(first, first + episodes)


def name_for_others(task_id: str) -> str:
    """A name by which other processes find the task: its file, for one of your own."""
    from llmserve_env.tasks.catalog import load_task
    from llmserve_env.tasks.files import is_shipped

    file = load_task(task_id).file
    return task_id if file is None or is_shipped(file) else str(file)


def play_all(args: argparse.Namespace, agents: Sequence[str], tasks: Sequence[str], seeds: Sequence[int]) -> list[Any]:
    """Results of all agents on all tasks, with a progress bar on terminals."""
    from tqdm import tqdm

    from llmserve_env.agents.registry import make_agent
    from llmserve_env.evaluation.rollout import chunks, evaluate
    from llmserve_env.tasks.catalog import load_task

    for name in agents:
        make_agent(name)
    pieces = chunks(agents, tasks, seeds)
    ray_address = getattr(args, "ray_address", None)
    if args.engine == "ray" or ray_address:
        from llmserve_env.evaluation.ray_evaluation import evaluate_on_ray

        everywhere = chunks(agents, [name_for_others(task) for task in tasks], seeds)
        return evaluate_on_ray(everywhere, None if ray_address == "local" else ray_address)
    steps = sum(load_task(piece.task).steps * len(piece.seeds) for piece in pieces)
    with tqdm(total=steps, unit="step", file=sys.stderr, disable=None) as bar:
        return evaluate(pieces, max(args.jobs, 1), bar.update)
