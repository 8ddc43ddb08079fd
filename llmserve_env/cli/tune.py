"""Search the best constant knobs of a task, for the `tuned` agent."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.running import named_tasks
from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.evaluation.parallel import Progress, Runner
    from llmserve_env.planning.tuning.recording import TunedConstant
    from llmserve_env.tasks.task import Task

METHODS = ("auto", "halving", "tpe")


def add_parser(subparsers: Any) -> None:
    """Add `tune` to the main command."""
    parser = subparsers.add_parser("tune", help="find the best constant of a task", description=__doc__)
    parser.add_argument("file", nargs="?", metavar="FILE.yaml", help="a task of your own (or use --task)")
    parser.add_argument("--task", help="all (default), or ids, numbers or YAML files separated by commas")
    parser.add_argument(
        "--method",
        choices=METHODS,
        default="auto",
        help="halving runs side by side and prunes; tpe is Optuna's, one trial after the other "
        "(auto: tpe for shipped tasks, halving for your own)",
    )
    parser.add_argument(
        "--trials",
        type=int,
        metavar="N",
        help="constants to try before the best is polished (default: 160, for halving 96)",
    )
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="tuning seeds per trial (default: 10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the search")
    parser.add_argument("--dry-run", action="store_true", help="print the constants, keep the file as it is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="threads of halving")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="run halving on this Ray cluster (`local`: a new one)")
    parser.set_defaults(run=run_tune)


def run_tune(args: argparse.Namespace) -> int:
    """Search and record, task by task."""
    from llmserve_env.cli.running import runner_of
    from llmserve_env.tasks.catalog import load_task

    tasks = [load_task(name) for name in named_tasks(args.file, args.task)]
    if args.ray_address and any(_method(args, task) == "tpe" for task in tasks):
        raise ConfigError("--method tpe tries one constant after the other; use --method halving on a Ray cluster")
    with runner_of(args.jobs, args.ray_address) as runner:
        for task in tasks:
            _tune(args, task, runner)
    return 0


def _is_own(task: Task) -> bool:
    from llmserve_env.tasks.files import is_shipped

    return task.file is not None and not is_shipped(task.file)


def _method(args: argparse.Namespace, task: Task) -> str:
    if args.method != "auto":
        return str(args.method)
    return "halving" if _is_own(task) else "tpe"


def _tune(args: argparse.Namespace, task: Task, runner: Runner) -> None:
    from tqdm import tqdm

    from llmserve_env.engine.knobs import mapping_from_knobs
    from llmserve_env.planning.tuning.freezing import ensure_references
    from llmserve_env.planning.tuning.recording import record

    is_own, method = _is_own(task), _method(args, task)
    trials = args.trials or {"halving": 96, "tpe": 160}[method]
    with tqdm(unit="piece", desc=task.id, file=sys.stderr, disable=None) as bar:
        if is_own and (written := ensure_references(task, runner, bar.update)):
            print(f"{task.id}: references frozen in {written}", file=sys.stderr)
        search = _halving if method == "halving" else _tpe
        found = search(args, task, trials, runner, bar.update)
    print(f"{task.id}: score {found.score:.4f} with {mapping_from_knobs(found.knobs, task.action_knobs)}")
    if not args.dry_run:
        name = task.file.name if is_own and task.file is not None else task.id
        chosen = "" if args.method == "auto" else f" --method {method}"
        command = f"llmserve tune --task {name}{chosen} --trials {trials} --episodes {args.episodes} --seed {args.seed}"
        path = record(task.id, found, command, trials, args.episodes)
        print(f"kept in {path}", file=sys.stderr)


def _tpe(args: argparse.Namespace, task: Task, trials: int, _runner: Runner, progress: Progress) -> TunedConstant:
    try:
        from llmserve_env.planning.tuning.search import search
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--method tpe needs {error.name}: make setup-train, or pip install '.[train]', or use --method halving"
        ) from error
    return search(task, trials, args.episodes, args.seed, progress)


def _halving(args: argparse.Namespace, task: Task, trials: int, runner: Runner, progress: Progress) -> TunedConstant:
    from llmserve_env.graders.references import reference_for
    from llmserve_env.planning.tuning.halving import halve
    from llmserve_env.planning.tuning.recording import TunedConstant

    reference = reference_for(task)
    result = halve(
        task,
        lambda figures: figures.score(task, reference),
        num_configurations=trials,
        num_seeds=args.episodes,
        seed=args.seed,
        runner=runner,
        progress=progress,
    )
    return TunedConstant(result.best.knobs, result.best.figures.score(task, reference))
