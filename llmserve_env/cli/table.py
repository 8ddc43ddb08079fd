"""`llmserve table`: export the simulator's figures as a lookup table, and look at one."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.backends.table.lookup import LookupTable


def add_parser(subparsers: Any) -> None:
    """Add `table` and its subcommands to the main command."""
    parser = subparsers.add_parser("table", help="export and show lookup tables", description=__doc__)
    commands = parser.add_subparsers(dest="table_command", required=True, metavar="COMMAND")
    export = commands.add_parser(
        "export",
        help="run the simulator over the grid and write a parquet table",
        description="Serve every grid point at saturation in the simulator and write the figures as parquet.",
    )
    export.add_argument("--task", required=True, help="id, number or YAML file; its outputs and memory limit apply")
    export.add_argument("--profile", metavar="NAME", help="another GPU profile (default: that of the task)")
    export.add_argument("--memory-limit-gb", type=float, metavar="GB", help="another limit (default: that of the task)")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.parquet")
    export.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    export.add_argument("--quick", action="store_true", help="a coarse grid: 324 points instead of 5,400")
    export.set_defaults(run=run_export)
    show = commands.add_parser(
        "show",
        help="origin, grid and figures of a table",
        description="Check a table and print figures over the batch.",
    )
    show.add_argument("table", type=Path, metavar="FILE.parquet")
    show.add_argument("--kv", type=float, default=1.0, help="KV budget (default: 1.0)")
    show.add_argument("--depth", type=int, default=0, help="speculation depth (default: 0)")
    show.add_argument("--tier", type=int, default=0, choices=(0, 1, 2), help="quantization tier (default: 0)")
    show.add_argument("--prompt", type=int, default=128, metavar="TOKENS", help="prompt length (default: 128)")
    show.add_argument("--memory-limit-gb", type=float, metavar="GB", help="the card's memory (default: the file's)")
    show.set_defaults(run=run_show)


def export_command(args: argparse.Namespace) -> str:
    """The command that writes the same figures again, without the place they go to."""
    given = [("--task", args.task), ("--profile", args.profile), ("--memory-limit-gb", args.memory_limit_gb)]
    words = ["llmserve", "table", "export", *(str(w) for pair in given if pair[1] is not None for w in pair)]
    return shlex.join([*words, *(["--quick"] if args.quick else []), "-o", args.output.name])


def run_export(args: argparse.Namespace) -> int:
    """`llmserve table export`."""
    from tqdm import tqdm

    from llmserve_env.backends.table.export import export_table
    from llmserve_env.backends.table.grid import FULL_GRID, QUICK_GRID
    from llmserve_env.tasks.catalog import load_task
    from llmserve_env.tasks.variants import on_profile

    if args.output.exists() and not args.overwrite:
        raise ConfigError(f"{args.output} exists; give another name or --overwrite")
    task = on_profile(load_task(args.task), args.profile, args.memory_limit_gb)
    grid = QUICK_GRID if args.quick else FULL_GRID
    # Shown on terminals only: a log file has no use for a moving bar.
    with tqdm(total=len(grid), unit="point", desc=task.id, file=sys.stderr, disable=None) as bar:
        origin = export_table(task, grid, args.output, export_command(args), bar.update)
    print(
        f"{args.output}: {len(grid)} points of {origin['task']} on {origin['profile']}, digest {origin['digest'][:16]}"
    )
    return 0


def run_show(args: argparse.Namespace) -> int:
    """`llmserve table show`."""
    from llmserve_env.backends.table.lookup import LookupTable

    table = LookupTable.load(args.table, args.memory_limit_gb)
    for name, value in table.metadata.items():
        print(f"{name}: {value}")
    print("\n".join(grid_lines(table)))
    print(f"\nKV {args.kv:g}, depth {args.depth}, tier {args.tier}, prompts of {args.prompt} tokens:")
    print("\n".join(figure_lines(table, args)))
    return 0


def grid_lines(table: LookupTable) -> list[str]:
    """The values of each axis."""
    from llmserve_env.backends.table.grid import AXES

    return [f"{axis}: {', '.join(f'{value:g}' for value in getattr(table.grid, axis))}" for axis in AXES]


def figure_lines(table: LookupTable, args: argparse.Namespace) -> list[str]:
    """One line per batch size."""
    curve = table.over_batch(args.kv, args.depth, args.tier, args.prompt)
    lines = [f"{'batch':>6}{'TTFT p50':>12}{'TTFT p99':>12}{'TPOT':>9}{'tokens/s':>10}{'memory':>9}{'USD/1k':>11}"]
    for size in table.grid.batch_size:
        f = curve.at(size)
        flag = "  out of memory" if f.is_out_of_memory else ""
        lines.append(
            f"{size:>6}{f.ttft_p50_ms:>9.1f} ms{f.ttft_p99_ms:>9.1f} ms{f.tpot_ms:>6.1f} ms{f.tps:>10.0f}"
            f"{f.gpu_mem_gb:>6.1f} GB{f.cost_per_1k:>11.6f}{flag}"
        )
    return lines
