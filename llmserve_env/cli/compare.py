"""Play the same task, seed and policy on a live vLLM and in the simulator, and print how far apart they are.

The simulator is shown twice: with the costs of the profile, and with costs fitted again to the iterations of this run.
The second removes the drift of a shared machine, so its errors are those of scheduling and queueing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from llmserve_env.cli.calibrate import settings_from
from llmserve_env.cli.running import write_text


def add_parser(subparsers: Any) -> None:
    """Add `compare` to the main command."""
    parser = subparsers.add_parser("compare", help="compare a live server with the simulator", description=__doc__)
    parser.add_argument("--real", dest="base_url", metavar="URL", help="default: LLMSERVE_REAL_BASE_URL")
    parser.add_argument("--model", metavar="NAME", help="default: LLMSERVE_REAL_MODEL")
    parser.add_argument("--control-dir", type=Path, metavar="DIR", help="default: LLMSERVE_REAL_CONTROL_DIR")
    parser.add_argument(
        "--sim", type=Path, required=True, metavar="PROFILE.json", help="profile written by `calibrate`"
    )
    parser.add_argument(
        "--host",
        type=Path,
        metavar="HOST.json",
        help="host beside the profile (default: the one that `calibrate` wrote)",
    )
    parser.add_argument("--task", default="tiny_server", metavar="NAME", help="id or YAML file (default: tiny_server)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--load",
        type=float,
        nargs="+",
        default=[1.0],
        metavar="X",
        help="multiples of the task's rate, one run each",
    )
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="number of consecutive seeds (default: 1)")
    parser.add_argument(
        "--agent", default="default_knobs", metavar="NAME", help="agent that plays on both (default: default_knobs)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="windows to play (default: the task's number of steps)")
    parser.add_argument("--windows", action="store_true", help="print every window")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the first seed at all loads")
    parser.add_argument("--json", metavar="FILE|-", help="write all figures as JSON")
    parser.set_defaults(run=run_compare)


def mean_error_lines(mean_errors: dict[str, dict[float, dict[str, float]]], num_seeds: int) -> Iterator[str]:
    """A line per kind of costs and rate."""
    for costs, by_rate in mean_errors.items():
        for rate, errors in by_rate.items():
            shown = ", ".join(f"{name} {error:+.1%}" for name, error in errors.items())
            yield f"costs of the {costs}: {rate:g} rps over {num_seeds} seeds: {shown}"


def run_compare(args: argparse.Namespace) -> int:
    """Play both sides and report."""
    from llmserve_env.agents.agent import view_of
    from llmserve_env.agents.registry import make_agent
    from llmserve_env.backends.real.tasks import real_task
    from llmserve_env.evaluation.live_comparison import LiveComparison, Policy, compare, report
    from llmserve_env.evaluation.live_comparison_text import phase_lines, save_plot, window_lines
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.host import beside, load_host
    from llmserve_env.rng import POLICY_STREAM, stream
    from llmserve_env.tasks.task import Task
    from llmserve_env.tasks.variants import at_rate, with_changes

    task = with_changes(real_task(args.task), deployment={"profile": str(args.sim.resolve())})
    if args.steps is not None:
        task = with_changes(task, steps=args.steps)
    profile, settings = load_profile(args.sim), settings_from(args)
    host_file = args.host or beside(args.sim)
    host = load_host(host_file) if args.host or host_file.is_file() else None
    found: list[LiveComparison] = []
    for seed, load in product(range(args.seed, args.seed + args.repeat), args.load):
        played = at_rate(task, load)

        def choose(seed: int = seed, played: Task = played) -> Policy:
            agent = make_agent(args.agent)
            agent.reset(played, [stream(seed, POLICY_STREAM)])
            return lambda batch, step: agent.act(view_of(batch, step))[0]

        sides = compare(played, profile, settings, seed, choose, host=host)
        found.extend(sides)
        for side in sides:
            print("\n".join(phase_lines(side)), flush=True)
        if args.windows:
            print("\n".join(window_lines(sides[1])))
    results = report(found)
    print("\n".join(mean_error_lines(results["mean_errors"], args.repeat)))
    if args.plot is not None:
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        save_plot([c for c in found if c.is_refitted and c.seed == args.seed], args.plot)
    if args.json is not None:
        write_text(args.json, json.dumps(results, indent=1))
    return 0
