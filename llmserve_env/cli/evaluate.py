"""Play agents on tasks and report scores with intervals."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.fleet_suite import EPISODES as FLEET_EPISODES
from llmserve_env.cli.fleet_suite import evaluate_fleet
from llmserve_env.cli.language_model import add_llm_arguments, llm_settings
from llmserve_env.cli.running import FLEET_SUITE, add_runner_arguments, named_tasks, runner_of, script, write_text
from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.evaluation.evaluate import EpisodeResult
    from llmserve_env.tasks.task import Task

LANGUAGE_MODEL = "llm"
ENGINES = ("local", "ray")
EPISODES = 20
EPISODES_HELP = f"seeds per task (default: {EPISODES}; of the fleet suite: {FLEET_EPISODES})"


def add_arguments(parser: Any) -> None:
    """Options of `evaluate.py` and `llmserve evaluate`."""
    add_agent_arguments(parser)
    parser.add_argument("--task", help="all, or ids, numbers or YAML files separated by commas (default: all)")
    parser.add_argument("--suite", metavar="NAME", help="every task of a suite: core, extended or fleet")
    parser.add_argument(
        "--series",
        type=Path,
        metavar="FILE",
        help="with --suite fleet: your own rates over days, as JSON (default: the shipped services)",
    )
    parser.add_argument("--episodes", type=int, metavar="N", help=EPISODES_HELP)
    parser.add_argument("--seed-start", type=int, metavar="N", help="first seed (default: that of the reported range)")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write JSON (to stdout without FILE)")
    parser.add_argument(
        "--csv", nargs="?", const="-", metavar="FILE", help="write one CSV row per episode (to stdout without FILE)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a self-contained HTML report")
    parser.add_argument("--engine", choices=ENGINES, default="local", help="ray: the same as --ray-address local")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_evaluate, program="llmserve evaluate")


def add_agent_arguments(parser: Any) -> None:
    """Which agents play."""
    parser.add_argument(
        "--agent",
        nargs="+",
        default=["ppo"],
        metavar="AGENT",
        help="names, or your own: file.py:Class, package.module:Class, onnx:FILE, safetensors:FOLDER, http://HOST:PORT "
        "(default: ppo)",
    )
    parser.add_argument("--weights", type=Path, metavar="PATH", help="passed to an agent that takes weights")
    add_llm_arguments(parser)


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
    from llmserve_env.evaluation.report import (
        as_csv,
        as_json,
        latency_table,
        pool_requests,
        provenance,
        tabulate,
        text_table,
        usage_lines,
        usage_of,
    )

    if args.engine == "ray" and args.ray_address is None:
        args.ray_address = "local"
    if args.suite == FLEET_SUITE:
        return evaluate_fleet(args)
    if args.series is not None:
        raise ConfigError(f"--series {args.series} is for --suite {FLEET_SUITE}, whose tasks play a service's rates")
    args.episodes = EPISODES if args.episodes is None else args.episodes
    tasks = named_tasks(args.task, suite=args.suite)
    seeds = evaluation_seeds(args.episodes, args.seed_start)
    results = play_all(args, args.agent, tasks, seeds)
    table, made = tabulate(results), provenance(args.program + _options(args), seeds, tasks)
    if "-" not in (args.json, args.csv):
        print("\n".join([f"{text_table(table)}\n\n{latency_table(pool_requests(results))}", *usage_lines(results)]))
    if args.json:
        used = usage_of(results)
        write_text(args.json, json.dumps(as_json(results, made, {"usage": used} if used else None), indent=2))
    if args.csv:
        write_text(args.csv, as_csv(results).rstrip("\n"))
    if args.html:
        from llmserve_env.evaluation.results_page import results_page

        write_text(args.html, results_page(table, results, made, tasks, args.agent))
    return 0


def _options(args: argparse.Namespace) -> str:
    start = "" if args.seed_start is None else f" --seed-start {args.seed_start}"
    which = f" --suite {args.suite}" if args.suite else f" --task {args.task or 'all'}"
    weights = f" --weights {args.weights}" if args.weights else ""
    return f" --agent {' '.join(args.agent)}{weights}{which} --episodes {args.episodes}{start}"


def evaluation_seeds(episodes: int, start: int | None) -> range:
    """The reported seeds, or others by their first one."""
    from llmserve_env.env.episode import MAX_SEED
    from llmserve_env.evaluation.seeds import REPORTED_SEEDS

    if episodes < 1:
        raise ConfigError(f"--episodes must be at least 1; got {episodes}")
    first = REPORTED_SEEDS.start if start is None else start
    if not 0 <= first <= MAX_SEED - episodes + 1:
        raise ConfigError(f"--seed-start must leave {episodes} seeds in 0..{MAX_SEED}; got {first}")
    return range(first, first + episodes)


def play_all(
    args: argparse.Namespace, agents: Sequence[str], tasks: Sequence[Task], seeds: Sequence[int]
) -> list[EpisodeResult]:
    """Results of all agents on all tasks."""
    from llmserve_env.agents.own.loading import load_agent
    from llmserve_env.evaluation.evaluate import evaluate

    options = {name: agent_options(args, name) for name in agents}
    for name in agents:
        # An unknown name or a missing key is reported before anything is played.
        load_agent(name, **options[name])
    with runner_of(args) as runner:
        return evaluate(agents, tasks, seeds, runner, options=options)


def agent_options(args: argparse.Namespace, agent: str) -> dict[str, Any]:
    """What the options of a command tell an agent."""
    if agent == LANGUAGE_MODEL:
        return {"settings": llm_settings(args)}
    weights = getattr(args, "weights", None)
    return {} if weights is None else {"weights": weights}
