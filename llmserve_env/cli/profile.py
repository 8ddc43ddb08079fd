"""Show latency profiles, predict iteration times with them, and make them from measurements or recordings."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.profile_composed import add_compose, add_list
from llmserve_env.cli.profile_engine import add_engine_arguments, profile_from_engine
from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError

if TYPE_CHECKING:
    from llmserve_env.profiles.schema import Profile

# A mirror of what the library allows, so that --help loads none of it; a test holds them equal.
SOURCES = ("aiconfigurator", "vllm-bench")


def add_parser(subparsers: Any) -> None:
    """Add `profile` and its subcommands to the main command."""
    parser = subparsers.add_parser("profile", help="show and make latency profiles of GPUs", description=__doc__)
    commands = parser.add_subparsers(dest="profile_command", required=True, metavar="COMMAND")
    add_list(commands)
    _add_show(commands)
    _add_predict(commands)
    _add_import(commands)
    _add_fit(commands)
    _add_compare(commands)
    add_compose(commands)


def _add_show(commands: Any) -> None:
    parser = commands.add_parser("show", help="print a profile's curves and draw them")
    parser.add_argument("name", metavar="NAME", help="a shipped profile, or the path of a .json file")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="image to write (default: NAME.png)")
    parser.add_argument("--no-plot", action="store_true", help="print only; write no image")
    _add_host(parser)
    parser.set_defaults(run=run_show)


def _add_predict(commands: Any) -> None:
    parser = commands.add_parser("predict", help="predict the time of given iterations")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--tier", choices=TIER_NAMES, default="FP16")
    parser.add_argument("--depth", type=int, default=0, help="draft tokens per decoding sequence (default: 0)")
    parser.add_argument(
        "--batches",
        required=True,
        metavar="FILE|-",
        help='JSON list of {"decode": [[sequences, context], ...], "prefill": [[chunk, past], ...]}; - reads stdin',
    )
    _add_host(parser)
    parser.add_argument(
        "--sync", action="store_true", help="schedule an iteration after the one before it, not beside it"
    )
    parser.add_argument(
        "--json", action="store_true", help='answer as [{"gpu_ms": ..., "host_ms": ..., "iteration_ms": ...}, ...]'
    )
    parser.set_defaults(run=run_predict)


def _add_host(parser: Any) -> None:
    parser.add_argument(
        "--host", metavar="NAME", help="the CPU beside the GPU: a shipped host, or the path of a .json file"
    )


def _add_import(commands: Any) -> None:
    parser = commands.add_parser(
        "import", help="make a profile from published kernel timings or from recordings of an engine"
    )
    parser.add_argument("--source", required=True, choices=SOURCES)
    parser.add_argument("--gpu", help="aiconfigurator: a card whose kernels were timed, such as a100-80gb")
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--suffix", default="", help="aiconfigurator: appended to the GPU in the profile's name")
    add_engine_arguments(parser, "vllm-bench: ")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder to write to (default: here)")
    parser.set_defaults(run=run_import)


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit", help="make a profile from the profiler's measurements, or from recordings or results of an engine"
    )
    parser.add_argument("measurements", type=Path, nargs="*", metavar="FILE", help="what the profiler measured")
    parser.add_argument("--gpu", help="a card listed in profiles/gpus.py with its peaks and price")
    parser.add_argument("--model", default="llama-3-8b")
    parser.add_argument("--add-to", metavar="NAME", help="add the tiers that were measured to this profile")
    add_engine_arguments(parser)
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="folder to write to (default: here)")
    parser.set_defaults(run=run_fit)


def _add_compare(commands: Any) -> None:
    parser = commands.add_parser("compare", help="compare a profile with the profiler's measurement files")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("measurements", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--tier", choices=TIER_NAMES, default="FP16")
    parser.add_argument("--held-out", action="store_true", help="only the points that were left out of the fit")
    parser.add_argument("--rows", action="store_true", help="also list every point")
    parser.set_defaults(run=run_compare)


def run_show(args: argparse.Namespace) -> int:
    """`llmserve profile show`."""
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.host import list_hosts, load_host
    from llmserve_env.profiles.host_showing import describe_host
    from llmserve_env.profiles.showing import describe, plot

    profile = load_profile(args.name)
    print(describe(profile))
    for host in [args.host] if args.host else list_hosts():
        print("\n" + describe_host(load_host(host), profile))
    if not args.no_plot:
        path = args.plot or Path(f"{profile.name}.png")
        plot(profile, path)
        print(f"\ndrawn in {path}")
    return 0


def run_predict(args: argparse.Namespace) -> int:
    """`llmserve profile predict`."""
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.batches import parse_batches
    from llmserve_env.profiles.host import load_host
    from llmserve_env.profiles.iteration_time import iteration_time

    profile = load_profile(args.name)
    costs = profile.costs()
    host = load_host(args.host).for_model(profile.model) if args.host else None
    text = sys.stdin.read() if args.batches == "-" else _read(Path(args.batches))
    batches = parse_batches(text)
    times = [iteration_time(costs, args.tier, batch, host, args.depth, not args.sync) for batch in batches]
    if args.json:
        print(json.dumps([asdict(time) for time in times]))
        return 0
    for time, batch in zip(times, batches, strict=True):
        clocks = f"  (GPU {time.gpu_ms:.3f}, host {time.host_ms:.3f}: the {time.bound_by} binds)" if host else ""
        print(f"{time.iteration_ms:.3f} ms{clocks}  {batch.describe()}")
    return 0


def run_import(args: argparse.Namespace) -> int:
    """`llmserve profile import`."""
    today = datetime.now(UTC).date().isoformat()
    if args.source == "aiconfigurator":
        from llmserve_env.profiles.composing.suite_profiles import compose

        if args.gpu is None:
            raise ProfileError("--source aiconfigurator needs --gpu")
        return _save(compose(args.gpu, args.model, today, args.suffix), args.out)
    return _save(profile_from_engine(args, today), args.out)


def run_fit(args: argparse.Namespace) -> int:
    """`llmserve profile fit`."""
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.measured import measured_profile, with_tiers
    from llmserve_env.profiles.measurements import load_measurements

    if not args.measurements:
        return _save(profile_from_engine(args, datetime.now(UTC).date().isoformat()), args.out)
    measurements = [load_measurements(path) for path in args.measurements]
    if args.add_to is not None:
        return _save(with_tiers(load_profile(args.add_to), measurements), args.out)
    if args.gpu is None:
        raise ProfileError("say which card was measured (--gpu NAME), or which profile gets the tiers (--add-to NAME)")
    return _save(measured_profile(args.gpu, args.model, measurements), args.out)


def run_compare(args: argparse.Namespace) -> int:
    """`llmserve profile compare`."""
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.comparison import compare, comparison_text
    from llmserve_env.profiles.measurements import load_measurements

    profile = load_profile(args.name)
    points = [p for path in args.measurements for p in load_measurements(path).points]
    print(comparison_text(compare(profile, args.tier, points, args.held_out), args.rows))
    return 0


def _save(profile: Profile, folder: Path) -> int:
    from llmserve_env.profiles.store import save_profile

    if not folder.is_dir():
        raise ProfileError(f"{folder} is not a folder; create it first or choose another with --out")
    path = save_profile(profile, folder)
    for name, tier in profile.tiers.items():
        error = tier.held_out
        told = f", error median {error.median_pct} %, p95 {error.p95_pct} % on {error.points} points" if error else ""
        print(f"{name}: {tier.origin}{told}")
    print(f"written to {path}")
    return 0


def _read(path: Path) -> str:
    if not path.is_file():
        raise ProfileError(f"{path} does not exist; give a JSON file of iterations, or - for stdin")
    return path.read_text(encoding="utf-8")
