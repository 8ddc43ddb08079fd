"""Profiles from what an engine recorded or a benchmark of it found: the arguments, and the profile."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError
from llmserve_env.json_files import read_json

if TYPE_CHECKING:
    from llmserve_env.profiles.schema import Profile


def add_engine_arguments(parser: Any, prefix: str = "") -> None:
    """What says where the recordings are and which profile they improve; `prefix` begins every line of help."""
    parser.add_argument("--base", help=f"{prefix}profile to start from, such as h100-80gb.qwen3-32b.tp2")
    parser.add_argument("--name", help=f"{prefix}name of the new profile")
    parser.add_argument(
        "--results", type=Path, nargs="+", default=[], metavar="FILE", help=f"{prefix}result JSONs of vllm bench"
    )
    parser.add_argument(
        "--iterations", type=Path, metavar="DIR", help=f"{prefix}folder with recorded iterations (steps.parquet)"
    )
    parser.add_argument("--run-name", metavar="RUN", help=f"{prefix}only this run of the recorded iterations")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"{prefix}config.json of the model, if it differs from the base profile's",
    )
    parser.add_argument(
        "--tier", choices=TIER_NAMES, default="FP16", help=f"{prefix}tier the engine ran (default: FP16)"
    )
    parser.add_argument("--memory-gb", type=float, metavar="GB", help=f"{prefix}the card's memory, if not the base's")


def profile_from_engine(args: argparse.Namespace, date: str) -> Profile:
    """The base profile, fitted to recorded iterations or scaled to results."""
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.architectures import architecture_from_config
    from llmserve_env.profiles.calibration import calibrate, fit_iterations
    from llmserve_env.profiles.engine_results import read_bench, read_iterations

    if args.base is None or args.name is None:
        raise ProfileError("recordings of an engine need --base (a profile to start from) and --name (of the new one)")
    if bool(args.results) == (args.iterations is not None):
        raise ProfileError("recordings of an engine are either --results FILE... or --iterations DIR")
    base = load_profile(args.base)
    if args.tier not in base.tiers:
        raise ProfileError(f"--tier {args.tier}: {base.name} has only {', '.join(base.tiers)}")
    if args.memory_gb is not None:
        if not args.memory_gb > 0:
            raise ProfileError(f"--memory-gb must be above 0; got {args.memory_gb:g}")
        gpu = base.gpu.model_copy(update={"memory_bytes": int(args.memory_gb * 10**9)})
        base = base.model_copy(update={"gpu": gpu})
    if args.results:
        observations = [observation for path in args.results for observation in read_bench(path, args.tier)]
        return calibrate(base, args.tier, observations, args.name, date)[0]
    iterations = read_iterations(args.iterations, args.tier, args.run_name)
    model = None if args.config is None else architecture_from_config(args.name, _config(args.config))
    return fit_iterations(base, args.tier, iterations, args.name, date, model)


def _config(path: Path) -> Any:
    return read_json(path, "the config.json of a model", ProfileError)
