"""Train PPO on a task (or one policy on all of them) and write weights that run without torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.running import named_tasks, script
from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.tasks.task import Task

ENGINES = ("sb3", "rllib")
DEFAULT_STEPS = 120_000


def add_arguments(parser: Any) -> None:
    """Options of `train.py` and `llmserve train`."""
    parser.add_argument("file", nargs="?", metavar="FILE.yaml", help="a task of your own (or use --task)")
    parser.add_argument("--task", help="all, or ids, numbers or YAML files separated by commas")
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, metavar="N", help="environment steps per policy")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--generalist", action="store_true", help="train one policy on all the named tasks")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint of the same name")
    parser.add_argument("--config", type=Path, metavar="FILE.yaml", help="hyper-parameters (default: the shipped ones)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="override one hyper-parameter; repeatable"
    )
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FOLDER",
        help="where to write policies (default: LLMSERVE_WEIGHTS; else llmserve_env/weights in a checkout, ./weights "
        "for an installed package)",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), metavar="FOLDER", help="folder for TensorBoard logs and checkpoints"
    )
    parser.add_argument(
        "--engine", choices=ENGINES, default="sb3", help="Stable-Baselines3 on this machine, or RLlib on Ray"
    )
    parser.add_argument("--num-env-runners", type=int, default=2, metavar="N", help="RLlib: processes that play")
    parser.add_argument("--ray-address", metavar="ADDRESS", help="RLlib: a Ray cluster (default: a local one)")
    parser.set_defaults(run=run_train, program="llmserve train")


def add_parser(subparsers: Any) -> None:
    """Add `train` to the main command."""
    add_arguments(subparsers.add_parser("train", help="train PPO policies", description=__doc__))


def main(argv: Sequence[str] | None = None) -> int:
    """`python train.py`."""
    return script(_script_arguments, "train.py", __doc__, argv)


def _script_arguments(parser: Any) -> None:
    add_arguments(parser)
    parser.set_defaults(program="python train.py")


def run_train(args: argparse.Namespace) -> int:
    """Train what was asked for, one policy after the other."""
    if args.steps < 1:
        raise ConfigError(f"--steps must be at least 1; got {args.steps}")
    if args.file is None and args.task is None:
        raise ConfigError("name what to train on: --task ID, --task all, or the YAML file of a task of your own")
    tasks = named_tasks(args.task, args.file)
    _freeze_missing_references(tasks)
    for group in [tasks] if args.generalist else [(task,) for task in tasks]:
        _train_one(args, group)
    return 0


def _freeze_missing_references(tasks: Sequence[Task]) -> None:
    """Validation ranks policies by score, which needs references; those of your own tasks are frozen here."""
    from llmserve_env.planning.freezing import ensure_references

    for task in tasks:
        if task.own_file is not None and (written := ensure_references(task)):
            print(f"{task.id}: references frozen in {written}", file=sys.stderr)


def _train_one(args: argparse.Namespace, tasks: tuple[Task, ...]) -> None:
    try:
        from llmserve_env.training.ppo import train
    except ModuleNotFoundError as error:
        raise ConfigError(f"training needs {error.name}: make setup-train, or pip install '.[train]'") from error
    from llmserve_env.agents.policy import weights_folder
    from llmserve_env.training.settings import TrainingRun, hyper_parameters, run_name

    name = run_name(tasks)
    run = TrainingRun(
        name=name,
        tasks=tasks,
        num_steps=args.steps,
        seed=args.seed,
        hyper_parameters=hyper_parameters(name, _overrides(args.set), args.config),
        weights=args.weights or weights_folder(),
        runs=args.runs,
        command=_command(args, tasks),
        resume=args.resume,
    )
    if args.engine == "rllib":
        from llmserve_env.training.rllib import train_on_ray

        trained = train_on_ray(run, args.num_env_runners, args.ray_address)
    else:
        trained = train(run)
    print(
        f"{name}: validation score {trained.score:.4f} at step {trained.best_step}; written to {trained.folder}\n"
        f"{trained.times.in_words()}"
    )


def _command(args: argparse.Namespace, tasks: tuple[Task, ...]) -> str:
    """The command that trains this policy again."""
    generalist = " --generalist" if args.generalist else ""
    settings = "".join(f" --set {pair}" for pair in args.set)
    engine = f" --engine rllib --num-env-runners {args.num_env_runners}" if args.engine == "rllib" else ""
    names = ",".join(task.typed_name for task in tasks)
    return f"{args.program} --task {names} --steps {args.steps} --seed {args.seed}{generalist}{settings}{engine}"


def _overrides(pairs: Sequence[str]) -> dict[str, Any]:
    import yaml

    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise ConfigError(f"--set {pair!r} is not NAME=VALUE, as in --set gamma=0.95")
        found[name] = yaml.safe_load(value)
    return found
