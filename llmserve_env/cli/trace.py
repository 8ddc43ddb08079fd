"""Import a request log, show it, and fit a workload to it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.workloads.traces.trace import Trace

# Mirrors of what the library allows, so that --help loads none of it; a test holds them equal.
FORMAT_NAMES = ("azure", "burstgpt", "mooncake", "csv", "jsonl", "openai-log")
TIME_UNIT_NAMES = ("auto", "iso", "s", "ms", "us", "ns")
ARRIVAL_KINDS = ("auto", "rate_series", "on_off")


def add_parser(subparsers: Any) -> None:
    """Add `trace` and its subcommands to the main command."""
    parser = subparsers.add_parser("trace", help="import, show and fit recorded traffic", description=__doc__)
    commands = parser.add_subparsers(dest="trace_command", required=True, metavar="COMMAND")
    _add_import(commands)
    _add_show(commands)
    _add_fit(commands)


def _add_import(commands: Any) -> None:
    parser = commands.add_parser(
        "import",
        help="read a request log into a compact parquet trace",
        description="Read a request log, plain or gzip, into a compact parquet trace, in bounded memory.",
    )
    parser.add_argument("log", type=Path, metavar="FILE")
    parser.add_argument("--format", required=True, choices=FORMAT_NAMES)
    parser.add_argument("-o", "--output", type=Path, help="parquet file to write (default: FILE's name with .parquet)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    parser.add_argument("--strict", action="store_true", help="refuse the log at its first bad row")
    parser.add_argument("--show-bad", type=int, default=10, metavar="N", help="bad rows to show (default: 10)")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="FIELD=NAME",
        help="column (CSV) or dotted path (JSON) of a field: arrival, prompt_tokens, output_tokens, tenant, priority, "
        "session, prefix, prefix_tokens; repeat as needed",
    )
    parser.add_argument("--time-unit", choices=TIME_UNIT_NAMES, help="unit of arrival times (default: the format's)")
    parser.add_argument("--delimiter", metavar="CHAR", help="delimiter of CSV columns (default: a comma)")
    parser.add_argument("--licence", metavar="TEXT", help="licence of the log, kept with the trace")
    parser.set_defaults(run=run_import)


def _add_show(commands: Any) -> None:
    parser = commands.add_parser(
        "show", help="show rate, burstiness, lengths and tenants of a trace", description="Describe an imported trace."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE.parquet")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="also draw it (png, svg or pdf)")
    parser.add_argument("--tenants", type=int, default=10, metavar="N", help="tenants to list (default: 10)")
    parser.set_defaults(run=run_show)


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="fit a workload generator to a trace and print its fidelity",
        description="Fit a workload to an imported trace, write it as YAML and compare its samples with the trace.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE.parquet")
    parser.add_argument("-o", "--output", type=Path, help="YAML to write (default: TRACE.workload.yaml)")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    parser.add_argument(
        "--arrivals", choices=ARRIVAL_KINDS, default="auto", help="process to fit (default: the closest)"
    )
    parser.add_argument(
        "--tenants", type=int, default=8, metavar="N", help="tenants that get their own source (default: 8)"
    )
    parser.add_argument(
        "--horizon-s", type=int, metavar="S", help="length of an episode (default: length of the trace)"
    )
    parser.add_argument("--random-start", action="store_true", help="start episodes at random points of a rate series")
    parser.add_argument("--ttft-slo-ms", type=float, metavar="MS", help="TTFT SLO of every class (default: none)")
    parser.add_argument("--patience-s", type=float, metavar="S", help="how long clients wait (default: forever)")
    parser.add_argument(
        "--acceptance", type=float, default=0.0, metavar="P", help="acceptance probability of draft tokens (default: 0)"
    )
    parser.set_defaults(run=run_fit)


def run_import(args: argparse.Namespace) -> int:
    """`llmserve trace import`."""
    from tqdm import tqdm

    from llmserve_env.workloads.traces.formats import resolve_format
    from llmserve_env.workloads.traces.importing import import_trace
    from llmserve_env.workloads.traces.text import import_text

    output = args.output or Path(args.log.name.removesuffix(".gz")).with_suffix(".parquet")
    _require_free(output, args.overwrite)
    log_format = resolve_format(args.format, _columns(args.column), args.time_unit, args.delimiter)
    size = args.log.stat().st_size if args.log.is_file() else None
    # Shown on terminals only: a log file has no use for a moving bar.
    with tqdm(total=size, unit="B", unit_scale=True, desc=args.log.name, file=sys.stderr, disable=None) as bar:
        result = import_trace(
            args.log,
            log_format,
            output,
            strict=args.strict,
            num_bad_shown=args.show_bad,
            licence=args.licence,
            progress=bar.update,
        )
    if result.bad_rows.first:
        print(result.bad_rows.describe(), file=sys.stderr)
    print(import_text(result))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """`llmserve trace show`."""
    from llmserve_env.workloads.traces.text import trace_text
    from llmserve_env.workloads.traces.trace import load_trace

    trace = load_trace(args.trace)
    print(trace_text(trace, args.tenants))
    if args.plot is not None:
        from llmserve_env.workloads.traces.plot import plot_trace

        plot_trace(trace, args.plot)
        print(f"\ndrawn in {args.plot}")
    return 0


def run_fit(args: argparse.Namespace) -> int:
    """`llmserve trace fit`."""
    from llmserve_env.workloads.traces.fidelity import measure_fidelity
    from llmserve_env.workloads.traces.fitting import FitOptions, fit_trace
    from llmserve_env.workloads.traces.text import fidelity_text
    from llmserve_env.workloads.traces.trace import load_trace

    output = args.output or args.trace.with_suffix(".workload.yaml")
    _require_free(output, args.overwrite)
    trace = load_trace(args.trace)
    fitted = fit_trace(
        trace,
        FitOptions(
            arrivals=args.arrivals,
            num_tenants=args.tenants,
            horizon_s=args.horizon_s,
            random_start=args.random_start,
            ttft_slo_ms=args.ttft_slo_ms,
            patience_s=args.patience_s,
            acceptance=args.acceptance,
        ),
    )
    output.write_text(_yaml(trace, fitted.data), encoding="utf-8")
    print("\n".join(fitted.notes))
    print(fidelity_text(measure_fidelity(trace, fitted.spec)))
    print(f"written to {output}")
    return 0


def _yaml(trace: Trace, data: dict[str, Any]) -> str:
    import yaml

    found = trace.metadata
    return (
        f"# Fitted to {found.source} ({found.format}, {found.rows} requests, sha256 {found.sha256}).\n"
        f"# Licence of the log: {found.licence}\n"
        + yaml.safe_dump({"workload": data}, sort_keys=False, default_flow_style=None, width=120)
    )


def _columns(given: list[str]) -> dict[str, str]:
    columns = {}
    for pair in given:
        field, equals, name = pair.partition("=")
        if not (field and equals and name):
            raise ConfigError(f"--column {pair!r} is not FIELD=NAME, as in --column arrival=ts")
        columns[field] = name
    return columns


def _require_free(output: Path, overwrite: bool) -> None:
    if output.exists() and not overwrite:
        raise ConfigError(f"{output} exists; use --overwrite to replace it or -o for another name")
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: the folder {output.parent} does not exist; create it first")
