"""Play policies on a live engine (`play`), measure what steering costs it (`overhead`), compare with the simulator."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from llmserve_env.errors import ConfigError, LLMServeError
from llmserve_env.evaluation.seeds import REPORTED_SEEDS
from tools.card_experiment.engines import ENGINES
from tools.card_experiment.policies import POLICIES
from tools.card_experiment.records import load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser("python -m tools.card_experiment", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("play", help="play on the engine of this machine, in real time")
    play.add_argument("--engine", choices=sorted(ENGINES), required=True)
    play.add_argument("--policy", nargs="+", default=list(POLICIES), help=f"default: {' '.join(POLICIES)}")
    play.add_argument("--seeds", type=int, nargs="+", default=list(REPORTED_SEEDS[:4]))
    play.add_argument("--windows", type=int, help="per episode (default: the task's)")
    play.add_argument("--model", type=Path, help="folder of the model, where the engine does not bring one")
    play.add_argument("--limit-s", type=float, help="begin no episode that would end later than this after the start")
    play.add_argument("--out", type=Path, required=True, help="episodes that it holds are not played again")
    play.set_defaults(run_command=play_all)
    overhead = commands.add_parser("overhead", help="measure what the plug-in adds to iterations")
    overhead.add_argument("--engine", choices=sorted(ENGINES), required=True)
    overhead.add_argument("--model", type=Path, help="folder of the model, where the engine does not bring one")
    overhead.add_argument("--out", type=Path, required=True)
    overhead.set_defaults(run_command=measure_overhead)
    hosts = commands.add_parser("hosts", help="the tuned constant and PPO in the simulator, beside other CPUs")
    hosts.set_defaults(run_command=show_hosts)
    host = commands.add_parser("host", help="fit the host of the episodes that `play` recorded before and after")
    host.add_argument("--source", type=Path, required=True, help="folder that `play` wrote")
    host.add_argument("--engine", choices=sorted(ENGINES), default="h200")
    host.add_argument("--save", type=Path, metavar="FILE.json", required=True)
    host.set_defaults(run_command=fit_host_of)
    report = commands.add_parser("report", help="compare with the simulator; the table of docs/card.md")
    report.add_argument("--source", type=Path, required=True, help="folder that `play` wrote")
    report.add_argument("--host", type=Path, metavar="FILE.json", help="simulate beside this host, not the task's")
    report.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw the scores and one seed")
    form = report.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true", help="a row per policy")
    form.add_argument("--json", action="store_true")
    report.set_defaults(run_command=report_all)
    again = commands.add_parser("again", help="the engine against itself: what two folders have in common")
    again.add_argument("--source", type=Path, nargs=2, required=True, metavar=("FIRST", "AGAIN"))
    again.set_defaults(run_command=report_again)
    asked = parser.parse_args(arguments)
    try:
        asked.run_command(asked)
    except LLMServeError as error:
        raise SystemExit(f"error: {error}") from error
    return 0


def play_all(asked: argparse.Namespace) -> None:
    """`play`."""
    from tools.card_experiment.running import run

    out = asked.out.resolve()
    run(
        ENGINES[asked.engine],
        asked.engine,
        asked.policy,
        asked.seeds,
        out,
        windows=asked.windows,
        model=asked.model.resolve() if asked.model else None,
        limit_s=asked.limit_s,
    )


def measure_overhead(asked: argparse.Namespace) -> None:
    """`overhead`."""
    from tools.card_experiment.overhead import as_text, measure

    print(as_text(measure(ENGINES[asked.engine], asked.out.resolve(), asked.model.resolve() if asked.model else None)))


def show_hosts(_: argparse.Namespace) -> None:
    """`hosts`."""
    from tools.card_experiment.hosts import as_markdown
    from tools.card_experiment.playing import task_of

    print(as_markdown(task_of(ENGINES["h200"], None), ENGINES["h200"]))


def fit_host_of(asked: argparse.Namespace) -> None:
    """`host`."""
    from tools.card_experiment.host_of_day import fit
    from tools.card_experiment.playing import task_of

    plan = ENGINES[asked.engine]
    found = fit(asked.source, plan, task_of(plan, None))
    asked.save.write_text(json.dumps(found.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")
    pieces_ms, single_ms = found.piecewise_graph.base_ms, found.no_graph.base_ms
    print(f"{asked.save}: {pieces_ms:.1f} ms to launch the pieces of a graph, {single_ms:.1f} ms without a graph")


def report_again(asked: argparse.Namespace) -> None:
    """`again`."""
    from tools.card_experiment.again import as_markdown
    from tools.card_experiment.playing import task_of

    first, again = (load(folder) for folder in asked.source)
    (engine,) = {record.facts["engine"] for record in (*first, *again)}
    print(as_markdown(first, again, task_of(ENGINES[engine], None).window_s))


def report_all(asked: argparse.Namespace) -> None:
    """`report`."""
    from tools.card_experiment.comparison import compare
    from tools.card_experiment.playing import task_of
    from tools.card_experiment.text import as_json, as_markdown, as_short_markdown

    records = load(asked.source)
    engines = {record.facts["engine"] for record in records}
    windows = {record.facts["windows"] for record in records}
    if len(engines) != 1 or len(windows) != 1:
        raise ConfigError(
            f"{asked.source} mixes engines {sorted(engines)} or lengths {sorted(windows)}; report one of each"
        )
    (engine,), (length,) = engines, windows
    plan, task = ENGINES[engine], task_of(ENGINES[engine], length)
    found = compare(task, plan, records, asked.host)
    as_text = as_json if asked.json else as_short_markdown if asked.short else as_markdown
    print(as_text(found))
    if asked.plot is not None:
        from tools.card_experiment.plot import draw

        draw(found, task, records, asked.plot)


if __name__ == "__main__":
    raise SystemExit(main())
