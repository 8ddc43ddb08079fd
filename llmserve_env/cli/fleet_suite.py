"""`--suite fleet` of `evaluate` and `benchmark`: agents on the engine, in dollars per day."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmserve_env.cli.running import FLEET_SUITE, runner_of, write_text
from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.fleet.playing import FleetResult
    from llmserve_env.fleet.series import RateSeries
    from llmserve_env.fleet.task import FleetTask

EPISODES = 28
"""Two a day of week 2 of both shipped services."""
BENCHMARKED = ("constant", "hpa", "keda", "kpa", "apa", "wva", "dynamo", "informed", "ppo", "oracle")

Results = dict[str, dict[str, list["FleetResult"]]]
"""By task and agent, episodes in the same order for every agent."""


def fleet_tasks(given: str | None) -> tuple[FleetTask, ...]:
    """The tasks of the suite, or those that `--task` names."""
    from llmserve_env.fleet.task import TASKS, load_fleet_task

    names = TASKS if given in (None, "all") else tuple(name.strip() for name in str(given).split(","))
    return tuple(load_fleet_task(name) for name in names)


def fleet_series(given: Path | None) -> tuple[RateSeries, ...]:
    """The series that `--series` names, or the shipped ones."""
    from llmserve_env.fleet.series import load_series
    from llmserve_env.fleet.weeks import shipped

    return shipped() if given is None else (load_series(given),)


def play_fleet(
    args: argparse.Namespace, agents: Sequence[str], tasks: Sequence[FleetTask], services: Sequence[RateSeries]
) -> Results:
    """All agents on the same episodes of the second half of the series."""
    from llmserve_env.fleet.playing import play
    from llmserve_env.fleet.weeks import REPORTED_SEED, episodes

    ready = {task.id: _ready(agents, task, is_named=getattr(args, "task", None) is not None) for task in tasks}
    if not any(ready.values()):
        raise ConfigError(f"{', '.join(agents)}: ready for none of {', '.join(ready)}")
    count = EPISODES if args.episodes is None else args.episodes
    found: Results = {}
    with runner_of(args) as runner:
        for task in tasks:
            if not (players := ready[task.id]):
                continue
            traffics = list(episodes(task, services, "test", count, REPORTED_SEED))
            pieces = [(name, traffic) for name in players for traffic in traffics]
            played = runner.map(lambda piece, task=task: play(task, *piece), pieces)  # type: ignore[misc]
            found[task.id] = {name: played[k * count : (k + 1) * count] for k, name in enumerate(players)}
    return found


def _ready(agents: Sequence[str], task: FleetTask, is_named: bool) -> list[str]:
    """The agents that can play a task; the others are named, and an error where the task was asked for by name."""
    from llmserve_env.fleet.agents import make_agent, why_not

    ready = []
    for name in agents:
        make_agent(name)
        reason = why_not(name, task)
        if reason is None:
            ready.append(name)
        elif is_named:
            raise ConfigError(reason)
        else:
            print(f"{task.id} is left out for {name}: {reason}", file=sys.stderr)
    return ready


def fleet_table(results: Results) -> str:
    """Dollars per day with their interval, and what they come from, an agent per line."""
    from llmserve_env.fleet.playing import summarise

    lines = []
    for task, by_agent in results.items():
        lines.append(
            f"{task:<16}{'$/day':>10} {'95 % interval':>20} {'$/M tokens':>11} {'attainment':>11} {'GPU-h/day':>10}"
        )
        for agent, played in by_agent.items():
            found = summarise(played)
            low, high = found.dollars_per_day.ci95
            lines.append(
                f"  {agent:<14}{found.dollars_per_day.mean:10.2f} {f'[{low:.2f}, {high:.2f}]':>20} "
                f"{found.dollars_per_million_tokens:11.4f} {found.attainment:11.4%} {found.gpu_hours_per_day:10.1f}"
            )
        usd = {name: [result.usd_per_day for result in played] for name, played in by_agent.items()}
        lines += [*gain_lines(usd), ""]
    return "\n".join(lines)


def gain_lines(usd: Mapping[str, Sequence[float]]) -> list[str]:
    """What the learned policy gains over the best rule and over the informed one, by the dollars of paired episodes."""
    from llmserve_env.fleet.rules.registry import OPERATORS
    from llmserve_env.fleet.statistics import estimate, gain_over

    rules = [name for name in OPERATORS if name in usd]
    if not rules:
        return []
    best = max(rules, key=lambda name: sum(usd[name]))
    pairs = [("ppo", best), ("ppo", "informed"), ("informed", best), ("oracle", "ppo"), ("constant", best)]
    lines = []
    for one, other in pairs:
        if one in usd and other in usd:
            more = estimate([a - b for a, b in zip(usd[one], usd[other], strict=True)])
            low, high = more.ci95
            line = f"  {one} over {other}: {more.mean:+.2f} $/day [{low:+.2f}, {high:+.2f}]"
            if estimate(usd[other]).ci95[0] > 0.0:
                # A share of dollars that may be none says nothing.
                gain = gain_over(usd[one], usd[other])
                low, high = gain.ci95
                line += f", {gain.mean:+.1%} [{low:+.1%}, {high:+.1%}]"
            lines.append(line)
    return lines


def fleet_json(results: Results) -> str:
    """One agent: its tasks. Several: their tasks by agent."""
    from llmserve_env.fleet.playing import summarise

    agents = list(dict.fromkeys(agent for played in results.values() for agent in played))
    by_agent = {
        agent: {"tasks": {t: summarise(played[agent]).as_dict() for t, played in results.items() if agent in played}}
        for agent in agents
    }
    return json.dumps(by_agent[agents[0]] if len(agents) == 1 else {"agents": by_agent}, indent=2)


def evaluate_fleet(args: argparse.Namespace) -> int:
    """`llmserve evaluate --suite fleet`."""
    _refuse(args, "csv", "html", "seed_start", "weights")
    services = fleet_series(args.series)
    results = play_fleet(args, args.agent, fleet_tasks(args.task), services)
    _print_notes(services, args.json == "-")
    if args.json != "-":
        print(fleet_table(results))
    if args.json:
        write_text(args.json, fleet_json(results))
    return 0


def benchmark_fleet(args: argparse.Namespace) -> int:
    """`llmserve benchmark --suite fleet`."""
    _refuse(args, "html", "readme", "seed_start")
    services = fleet_series(None)
    results = play_fleet(args, args.agent or BENCHMARKED, fleet_tasks(None), services)
    _print_notes(services, is_quiet=False)
    print(fleet_table(results))
    if args.json:
        write_text(args.json, fleet_json(results))
    return 0


def _refuse(args: argparse.Namespace, *options: str) -> None:
    """An option that means nothing here is an error, so that nobody believes that it was heeded."""
    for option in options:
        if getattr(args, option) is not None:
            raise ConfigError(
                f"--suite {FLEET_SUITE} takes no --{option.replace('_', '-')}; results are printed, or --json"
            )


def _print_notes(services: Sequence[RateSeries], is_quiet: bool) -> None:
    """Say what was done to the series; on stderr where stdout is for JSON."""
    for series in services:
        for note in series.notes:
            print(note, file=sys.stderr if is_quiet else sys.stdout)
