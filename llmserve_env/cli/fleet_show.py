"""`llmserve fleet show`: one episode of an agent as a page, with what it did when, in dollars."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from llmserve_env.cli.running import write_text
from llmserve_env.errors import ConfigError


def add_verb(verbs: Any) -> None:
    """Add `show` to the `fleet` command."""
    show = verbs.add_parser("show", help="an episode as a page: replicas, traffic, promises, dollars")
    show.add_argument("task", help="id of a fleet task, or its YAML file")
    show.add_argument(
        "--agent", default="informed", metavar="NAME", help="a name, or file.py:decide (default: informed)"
    )
    show.add_argument(
        "--series", default="servegen_m_large", metavar="NAME", help="rates: a shipped name or a .json file"
    )
    show.add_argument("--half", choices=("train", "test"), default="test", help="of the series (default: test)")
    show.add_argument("--episode", type=int, default=0, metavar="N", help="which one of the half (default: 0)")
    show.add_argument("--seed", type=int, default=0, metavar="N", help="of the traffic (default: 0)")
    show.add_argument("--out", required=True, metavar="FILE", help="the page, a file that needs nothing else")
    show.set_defaults(run=run_show)


def run_show(args: argparse.Namespace) -> int:
    """Play and write."""
    from llmserve_env.fleet.agents import OracleAgent, make_agent
    from llmserve_env.fleet.series import load_series
    from llmserve_env.fleet.task import load_fleet_task
    from llmserve_env.fleet.timeline import play_timeline
    from llmserve_env.planning.fleet_page import fleet_page, headline

    task, series, agent = load_fleet_task(args.task), load_series(args.series), make_agent(args.agent)
    starts = series.starts(args.half, task.length_s)
    if not 0 <= args.episode < len(starts):
        raise ConfigError(f"--episode must be from 0 to {len(starts) - 1}; got {args.episode}")
    traffic = task.traffic(series, starts[args.episode], args.seed)
    if isinstance(agent, OracleAgent):
        agent.foresee(traffic)
    agent.reset(task)
    timeline = play_timeline(task, traffic, agent.act)
    name = Path(args.agent).name
    command = (
        f"llmserve fleet show {shlex.quote(args.task)} --agent {shlex.quote(args.agent)} "
        f"--series {shlex.quote(args.series)} --half {args.half} --episode {args.episode} --seed {args.seed} "
        f"--out {shlex.quote(Path(args.out).name)}"
    )
    print(headline(timeline, name))
    for note in series.notes:
        print(note)
    write_text(args.out, fleet_page(timeline, name, command, series.notes))
    return 0
