"""Search for the best constant knobs of a task, for the `tuned` agent.

For a task of your own this is the configuration that keeps its promises best on its own fleet, as `capacity` and
`report` give it. Shipped tasks are tuned for the score.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.running import add_answer_arguments, add_runner_arguments, named_tasks, protocol_of, runner_of
from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.evaluation.runner import Runner
    from llmserve_env.planning.tuning.recording import TunedConstant
    from llmserve_env.tasks.task import Task

TRIAL_EPISODES = 10
"""Seeds per trial of a search for the score."""
METHODS = ("auto", "slo", "halving", "tpe")


def add_parser(subparsers: Any) -> None:
    """Add `tune` to the main command."""
    parser = subparsers.add_parser("tune", help="find the best constant of a task", description=__doc__)
    parser.add_argument("file", nargs="?", metavar="FILE.yaml", help="a task of your own (or use --task)")
    parser.add_argument("--task", help="all (default), or ids, numbers or YAML files separated by commas")
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="auto",
        help="slo: what keeps the promises; halving and tpe: what scores best, by trials in parallel or by Optuna's "
        "(auto: slo for a task of your own, tpe for shipped tasks)",
    )
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="constants to try before refining the best (default: 160; for halving 96)",
    )
    add_answer_arguments(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the search")
    parser.add_argument("--dry-run", action="store_true", help="print the constants and leave the file unchanged")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_tune, episodes=None)


def run_tune(args: argparse.Namespace) -> int:
    """Search and record, task by task."""
    tasks = named_tasks(args.task, args.file)
    if args.ray_address and any(_method(args, task) == "tpe" for task in tasks):
        raise ConfigError("--method tpe tries one constant after the other; use --method halving on a Ray cluster")
    with runner_of(args) as runner:
        for task in tasks:
            _tune(args, task, runner)
    return 0


def _method(args: argparse.Namespace, task: Task) -> str:
    if args.method != "auto":
        return str(args.method)
    return "tpe" if task.own_file is None else "slo"


def _tune_for_promises(args: argparse.Namespace, task: Task, runner: Runner) -> None:
    """Find or read the task's answer, which is stored beside it with the constant of the `tuned` agent."""
    from llmserve_env.planning.answer.store import answer_for
    from llmserve_env.planning.capacity.text import tune_text

    print(tune_text(task, answer_for(task, protocol_of(args), runner)))


def _tune(args: argparse.Namespace, task: Task, runner: Runner) -> None:

    from llmserve_env.engine.knobs import mapping_from_knobs
    from llmserve_env.planning.freezing import ensure_references
    from llmserve_env.planning.tuning.recording import record

    method = _method(args, task)
    if method == "slo":
        _tune_for_promises(args, task, runner)
        return
    args = argparse.Namespace(**{**vars(args), "episodes": args.episodes or TRIAL_EPISODES})
    trials = args.trials or {"halving": 96, "tpe": 160}[method]
    runner.progress.stage(task.id)
    if task.own_file is not None and (written := ensure_references(task, runner)):
        print(f"{task.id}: references frozen in {written}", file=sys.stderr)
    search = _halving if method == "halving" else _tpe
    found = search(args, task, trials, runner)
    print(f"{task.id}: score {found.score:.4f} with {mapping_from_knobs(found.knobs, task.action_knobs)}")
    if not args.dry_run:
        chosen = "" if args.method == "auto" else f" --method {method}"
        options = f"{chosen} --trials {trials} --episodes {args.episodes} --seed {args.seed}"
        path = record(task, found, f"llmserve tune --task {task.typed_name}{options}", trials, args.episodes)
        print(f"kept in {path}", file=sys.stderr)


def _tpe(args: argparse.Namespace, task: Task, trials: int, runner: Runner) -> TunedConstant:
    try:
        from llmserve_env.planning.tuning.search import search
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--method tpe needs {error.name}: make setup-train, or pip install '.[train]', or use --method halving"
        ) from error
    return search(task, trials, args.episodes, args.seed, runner)


def _halving(args: argparse.Namespace, task: Task, trials: int, runner: Runner) -> TunedConstant:
    from llmserve_env.graders.references import reference_for
    from llmserve_env.planning.tuning.halving import halve
    from llmserve_env.planning.tuning.recording import TunedConstant

    reference = reference_for(task)
    result = halve(
        task,
        lambda outcome: outcome.score(task, reference),
        num_configurations=trials,
        num_seeds=args.episodes,
        seed=args.seed,
        runner=runner,
    )
    return TunedConstant(result.best.knobs, result.best.outcome.score(task, reference))
