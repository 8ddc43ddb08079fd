"""Run the benchmarked agents on every task of a suite, and rewrite the results table of the README."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.evaluate import EPISODES, EPISODES_HELP, evaluation_seeds, play_all
from llmserve_env.cli.fleet_suite import benchmark_fleet
from llmserve_env.cli.running import FLEET_SUITE, add_runner_arguments, named_tasks, write_text

if TYPE_CHECKING:
    from llmserve_env.evaluation.evaluate import EpisodeResult
    from llmserve_env.tasks.task import Task


def add_parser(subparsers: Any) -> None:
    """Add `benchmark` to the main command."""
    parser = subparsers.add_parser("benchmark", help="play all agents and print the results table", description=__doc__)
    parser.add_argument(
        "--suite",
        default="core",
        metavar="NAME",
        help="core, the three core tasks, or extended, the tasks made from production traces, or fleet (default: core)",
    )
    parser.add_argument("--agent", nargs="+", metavar="AGENT", help="agents to play (default: those of the table)")
    parser.add_argument("--episodes", type=int, metavar="N", help=EPISODES_HELP)
    parser.add_argument("--seed-start", type=int, metavar="N", help="first seed (default: that of the reported range)")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="document whose results table to rewrite")
    parser.add_argument("--json", metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML report")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_benchmark)


def run_benchmark(args: argparse.Namespace) -> int:
    """Play, print, rewrite."""
    from llmserve_env.agents.registry import BENCHMARKED
    from llmserve_env.evaluation.readme import rewrite_block
    from llmserve_env.evaluation.report import (
        as_json,
        closed_gaps,
        headline_table,
        latency_table,
        pool_requests,
        provenance,
        tabulate,
        text_table,
    )
    from llmserve_env.tasks.catalog import SUITES

    if args.suite == FLEET_SUITE:
        return benchmark_fleet(args)
    args.episodes = EPISODES if args.episodes is None else args.episodes
    tasks = named_tasks(None, suite=args.suite)
    agents = args.agent or BENCHMARKED[args.suite]
    seeds = evaluation_seeds(args.episodes, args.seed_start)
    results = _play(args, agents, tasks, seeds)
    table = tabulate(results)
    start = "" if args.seed_start is None else f" --seed-start {args.seed_start}"
    suite = "" if args.suite == "core" else f" --suite {args.suite}"
    made = provenance(f"llmserve benchmark{suite} --episodes {args.episodes}{start}", seeds, tasks)
    print(text_table(table))
    print(f"\n{latency_table(pool_requests(results))}\n")
    closed = closed_gaps(table, SUITES[args.suite])
    for task, share in closed.items():
        print(f"ppo closes {share:.0%} of the gap from tuned to clairvoyant on {task}")
    if args.readme:
        changed = rewrite_block(args.readme, headline_table(table, made))
        print(f"{args.readme}: table {'rewritten' if changed else 'unchanged'}")
    if args.json:
        write_text(args.json, json.dumps(as_json(results, made, {"gap_closed_by_ppo": closed}), indent=2))
    if args.html:
        from llmserve_env.evaluation.results_page import results_page

        shown = [name for name in ("tuned", "ppo") if name in agents]
        write_text(args.html, results_page(table, results, made, tasks, shown))
    return 0


def _play(
    args: argparse.Namespace, agents: Sequence[str], tasks: Sequence[Task], seeds: Sequence[int]
) -> list[EpisodeResult]:
    """Play, and say how long it took."""
    began, began_cpu = time.perf_counter(), time.process_time()
    results = play_all(args, agents, tasks, seeds)
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    print(f"{len(results)} episodes in {wall_s:.0f} s ({cpu_s:.0f} s of CPU)", file=sys.stderr)
    return results
