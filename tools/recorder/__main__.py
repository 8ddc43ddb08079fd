"""Record vLLM (`gpu --out DIR [--engine NAME] [--run NAME]`) and gather the runs (`pack --source DIR --out DIR`)."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from tools.recorder.plans import PLANS


def main() -> None:
    """Record the planned runs of the engines asked for, or pack recorded ones into the files the benchmarks read."""
    parser = argparse.ArgumentParser("python -m tools.recorder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    gpu = commands.add_parser("gpu", help="record vLLM on the GPU of this machine")
    gpu.add_argument("--out", type=Path, required=True, help="folder for the recorded runs")
    gpu.add_argument("--engine", action="append", help="only these engines of the plan")
    gpu.add_argument("--run", action="append", help="only these runs")
    gpu.set_defaults(run_command=record)
    packing = commands.add_parser("pack", help="gather recorded runs into runs.json and two parquet files")
    packing.add_argument("--source", type=Path, required=True, help="folder that `gpu` wrote")
    packing.add_argument("--out", type=Path, required=True)
    packing.set_defaults(run_command=pack_runs)
    asked = parser.parse_args()
    asked.run_command(asked)


def record(asked: argparse.Namespace) -> None:
    """Start each engine of the plan and record its runs."""
    from tools.recorder.gpu import record_engine

    asked.out.mkdir(parents=True, exist_ok=True)
    for plan in PLANS:
        runs = [run for run in plan.runs if not asked.run or run.name in asked.run]
        if runs and (not asked.engine or plan.name in asked.engine):
            asyncio.run(record_engine(plan, asked.out.resolve(), runs))


def pack_runs(asked: argparse.Namespace) -> None:
    """Write the benchmark's files."""
    from tools.recorder.columns import COLUMNS
    from tools.recorder.files import pack

    print(f"packed {', '.join(pack(asked.source, asked.out, COLUMNS))}")


if __name__ == "__main__":
    main()
