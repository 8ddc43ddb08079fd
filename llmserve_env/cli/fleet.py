"""Prepare the fleet tasks: fit the surrogate, tune the rules, train the policy. Evaluate with `--suite fleet`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.fleet_show import add_verb
from llmserve_env.cli.running import progress_bar

if TYPE_CHECKING:
    from llmserve_env.fleet.fluid.calibration import Calibration
    from llmserve_env.fleet.fluid.worlds import Worlds
    from llmserve_env.fleet.task import FleetTask

RECORDED_EPISODES = 48


def add_parser(subparsers: Any) -> None:
    """Add `fleet` to the main command."""
    parser = subparsers.add_parser("fleet", help="tune rules and train policies for fleets", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    calibrate = verbs.add_parser("calibrate", help="fit the surrogate to runs of the engine on week 1")
    calibrate.add_argument("--episodes", type=int, default=RECORDED_EPISODES, metavar="N", help="recorded episodes")
    tune = verbs.add_parser("tune", help="tune rules on week 1, on the surrogate")
    refine = verbs.add_parser("refine", help="let the engine choose among a rule's best settings, on week 1")
    for verb in (tune, refine):
        verb.add_argument("--agent", nargs="+", metavar="RULE", help="rules to tune (default: all)")
    refine.add_argument("--jobs", type=int, default=2, metavar="N", help="episodes at a time (default: 2)")
    train = verbs.add_parser("train", help="train a policy that corrects the informed rule on week 1")
    train.add_argument("--steps", type=int, default=16_000_000, metavar="N", help="decisions (default: 16,000,000)")
    train.add_argument("--seed", type=int, default=0, metavar="N", help="of training (default: 0)")
    runs = ((calibrate, run_calibrate), (tune, run_tune), (refine, run_refine), (train, run_train))
    for verb, run in runs:
        verb.add_argument("task", help="id of a fleet task, or its YAML file")
        verb.set_defaults(run=run)
    add_verb(verbs)


def _task(args: argparse.Namespace) -> FleetTask:
    from llmserve_env.fleet.task import load_fleet_task

    return load_fleet_task(args.task)


def run_calibrate(args: argparse.Namespace) -> int:
    """Record, fit, and print how close the surrogate is."""
    from llmserve_env.fleet.fluid.calibration import comparison, fit, save_calibration
    from llmserve_env.fleet.fluid.recording import best_token_budget, record
    from llmserve_env.fleet.weeks import shipped

    task = _task(args)
    with progress_bar() as bar:
        bar.stage("recording")
        bar.expect(args.episodes)
        recording = record(task, shipped(), args.episodes, bar.finish, best_token_budget(task, shipped()))
    found = fit(task, recording)
    print(comparison(task, recording, found))
    print(f"written to {save_calibration(found)}", file=sys.stderr)
    return 0


def run_tune(args: argparse.Namespace) -> int:
    """Tune on the surrogate, and keep the best settings."""
    from llmserve_env.fleet.fluid.calibration import load_calibration
    from llmserve_env.fleet.rules.registry import SCALERS, check_rule
    from llmserve_env.fleet.weeks import tuning_worlds

    task = _task(args)
    names = [check_rule(name) for name in args.agent or SCALERS]
    calibration, worlds = load_calibration(task), tuning_worlds(task)
    for name in names:
        _tune_one(task, worlds, calibration, name)
    return 0


def _tune_one(task: FleetTask, worlds: Worlds, calibration: Calibration, name: str) -> None:
    """Tune one rule; the best so far is kept after every round, so that a stopped run goes on where it was."""
    from llmserve_env.fleet.tuned import save_tuned
    from llmserve_env.fleet.tuning import Tuned, tune_rule

    per_day = 86_400.0 / task.length_s

    def keep(found: Tuned) -> None:
        usd = round(found.usd * per_day, 2)
        entry = {"settings": found.settings, "tried": found.tried, "surrogate_usd_per_day": usd}
        save_tuned(task, name, {**entry, "command": f"llmserve fleet tune {task.id} --agent {name}"})
        print(f"{name}: {found.tried} settings, {usd:.2f} $/day", file=sys.stderr, flush=True)

    found = tune_rule(task, worlds, calibration, name, keep)
    print(
        f"{task.id} {name}: {found.usd * per_day:.2f} $/day on the surrogate after {found.tried} settings", flush=True
    )


def run_refine(args: argparse.Namespace) -> int:
    """Play each rule's best settings on the engine, and keep those that earn most there."""
    from llmserve_env.evaluation.runner import Threads
    from llmserve_env.fleet.fluid.calibration import load_calibration
    from llmserve_env.fleet.refining import propose, refine
    from llmserve_env.fleet.rules.registry import SCALERS, check_rule
    from llmserve_env.fleet.tuned import save_refined
    from llmserve_env.fleet.weeks import refining_traffics, tuning_worlds

    task = _task(args)
    names = [check_rule(name) for name in args.agent or SCALERS]
    calibration, worlds, traffics = load_calibration(task), tuning_worlds(task), refining_traffics(task)
    for name in names:
        proposed = propose(task, worlds, calibration, name)
        with progress_bar() as bar:
            bar.stage(name)
            found = refine(task, calibration.token_budget, name, proposed, traffics, Threads(args.jobs, bar).map)
        save_refined(task, name, found.settings, found.usd_per_day, found.played)
        print(
            f"{task.id} {name}: {found.usd_per_day:.2f} $/day on the engine, week 1; "
            f"{found.before_usd_per_day:.2f} before, {found.played} settings played",
            flush=True,
        )
    return 0


def run_train(args: argparse.Namespace) -> int:
    """Train with a progress bar, and say what the policy gains on the surrogate."""
    from tqdm import tqdm

    from llmserve_env.training.fleet import train
    from llmserve_env.training.residual_ppo import PpoSettings

    task = _task(args)
    with tqdm(total=args.steps, unit="step", unit_scale=True, file=sys.stderr, mininterval=2.0) as bar:

        def report(steps: int, reward: float) -> None:
            bar.update(steps - bar.n)
            bar.set_postfix_str(f"gain per step {reward:+.3f}")

        path = train(task, PpoSettings(steps=args.steps, seed=args.seed), report)
    print(path.read_text(encoding="utf-8"))
    return 0
