"""Record vLLM (`virtual`, `cpu` or `gpu`, each `--out DIR [--run NAME]`) and gather the runs (`pack`)."""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.recorder.plans import PLANS
from tools.recorder.scheduler_plans import CPU_RUNS, VIRTUAL_RUNS, SchedulerRun


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the planned runs, or pack recorded ones into the files the benchmarks read."""
    parser = argparse.ArgumentParser("python -m tools.recorder", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    virtual = commands.add_parser("virtual", help="vLLM's scheduler on a virtual clock; any machine, no weights")
    virtual.set_defaults(run_command=record_virtual_runs)
    cpu = commands.add_parser("cpu", help="the whole engine on a CPU, timed in CPU seconds")
    cpu.add_argument("--model", type=Path, required=True, help="folder that tools/tiny_model.py wrote")
    cpu.set_defaults(run_command=record_cpu_runs)
    gpu = commands.add_parser("gpu", help="the whole engine on the GPU of this machine, on the wall clock")
    gpu.add_argument("--engine", action="append", help="only these engines of the plan")
    gpu.set_defaults(run_command=record_gpu_runs)
    for command in (virtual, cpu, gpu):
        command.add_argument("--out", type=Path, required=True, help="folder for the recorded runs")
        command.add_argument("--run", action="append", help="only these runs")
    packing = commands.add_parser("pack", help="gather recorded runs into runs.json and parquet files")
    packing.add_argument("--source", type=Path, required=True, help="folder that one of the other commands wrote")
    packing.add_argument("--out", type=Path, required=True)
    packing.set_defaults(run_command=pack_runs)
    asked = parser.parse_args(arguments)
    asked.run_command(asked)


def chosen(runs: tuple[SchedulerRun, ...], names: list[str] | None) -> list[SchedulerRun]:
    """The runs asked for; all of them where none is named."""
    known = [run.name for run in runs]
    if unknown := sorted(set(names or ()) - set(known)):
        raise SystemExit(f"no planned run is called {', '.join(unknown)}; planned are {', '.join(known)}")
    return [run for run in runs if not names or run.name in names]


def record_virtual_runs(asked: argparse.Namespace) -> None:
    """Step the scheduler through each run."""
    from tools.recorder.virtual import record_virtual

    asked.out.mkdir(parents=True, exist_ok=True)
    for run in chosen(VIRTUAL_RUNS, asked.run):
        print(f"{run.name}: {record_virtual(run, asked.out)}", flush=True)


def record_cpu_runs(asked: argparse.Namespace) -> None:
    """Serve each run with an engine in a process of its own, so that no run warms up the next."""
    from tools.recorder.cpu import record_cpu

    asked.out.mkdir(parents=True, exist_ok=True)
    runs = chosen(CPU_RUNS, asked.run)
    if len(runs) == 1:
        print(f"{runs[0].name}: {record_cpu(runs[0], asked.model, asked.out)}", flush=True)
        return
    for run in runs:
        command = [sys.executable, "-m", "tools.recorder", "cpu", "--model", str(asked.model), "--out", str(asked.out)]
        subprocess.run([*command, "--run", run.name], check=True)


def record_gpu_runs(asked: argparse.Namespace) -> None:
    """Start each engine of the plan and record its runs."""
    from tools.recorder.gpu import record_engine

    asked.out.mkdir(parents=True, exist_ok=True)
    for plan in PLANS:
        runs = [run for run in plan.runs if not asked.run or run.name in asked.run]
        if runs and (not asked.engine or plan.name in asked.engine):
            asyncio.run(record_engine(plan, asked.out.resolve(), runs))


def pack_runs(asked: argparse.Namespace) -> None:
    """Write the benchmark's files: decisions of a scheduler, or the timed iterations of a GPU."""
    from tools.recorder.columns import COLUMNS
    from tools.recorder.decision_files import SUFFIX, pack_decisions
    from tools.recorder.files import pack

    has_decisions = any(asked.source.glob(f"*{SUFFIX}"))
    names = pack_decisions(asked.source, asked.out) if has_decisions else pack(asked.source, asked.out, COLUMNS)
    print(f"packed {', '.join(names)}")


if __name__ == "__main__":
    main()
