"""Play policies on a live engine (`play`), and compare what happened with the simulator (`report`)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from llmserve_env.errors import ConfigError, LLMServeError
from tools.card_experiment.engines import ENGINES
from tools.card_experiment.policies import POLICIES
from tools.card_experiment.records import load

HOST = "xeon-h200-vllm-0.26"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser("python -m tools.card_experiment", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    play = commands.add_parser("play", help="play on the engine of this machine, in real time")
    play.add_argument("--engine", choices=sorted(ENGINES), required=True)
    play.add_argument("--policy", nargs="+", default=list(POLICIES), help=f"default: {' '.join(POLICIES)}")
    play.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    play.add_argument("--windows", type=int, help="per episode (default: the task's)")
    play.add_argument("--model", type=Path, help="folder of the model, where the engine does not bring one")
    play.add_argument("--out", type=Path, required=True)
    play.set_defaults(run_command=play_all)
    report = commands.add_parser("report", help="compare with the simulator; the table of docs/card.md")
    report.add_argument("--source", type=Path, required=True, help="folder that `play` wrote")
    report.add_argument("--host", help=f"host profile (default: {HOST} for the h200, none for the cpu)")
    report.add_argument("--json", action="store_true")
    report.set_defaults(run_command=report_all)
    asked = parser.parse_args(arguments)
    try:
        asked.run_command(asked)
    except LLMServeError as error:
        raise SystemExit(f"error: {error}") from error
    return 0


def play_all(asked: argparse.Namespace) -> None:
    """`play`."""
    from tools.card_experiment.playing import run

    out = asked.out.resolve()
    run(
        ENGINES[asked.engine],
        asked.engine,
        asked.policy,
        asked.seeds,
        out,
        windows=asked.windows,
        model=asked.model.resolve() if asked.model else None,
    )


def report_all(asked: argparse.Namespace) -> None:
    """`report`."""
    from tools.card_experiment.comparison import compare
    from tools.card_experiment.playing import task_of
    from tools.card_experiment.text import as_json, as_markdown

    records = load(asked.source)
    engines = {record.facts["engine"] for record in records}
    windows = {record.facts["windows"] for record in records}
    if len(engines) != 1 or len(windows) != 1:
        raise ConfigError(
            f"{asked.source} mixes engines {sorted(engines)} or lengths {sorted(windows)}; report one of each"
        )
    (engine,), (length,) = engines, windows
    plan = ENGINES[engine]
    found = compare(task_of(plan, length), plan, records, asked.host or (HOST if engine == "h200" else None))
    seeds = {record.key[1] for record in records}
    print(as_json(found) if asked.json else as_markdown(found, len(seeds)))


if __name__ == "__main__":
    raise SystemExit(main())
