"""Make a latency profile and a host of a live vLLM server: probe it, record iterations, fit each clock separately.

The profile is the device's time, the host that of the CPU beside it (docs/profiles.md); the host is written next to the
profile, as NAME.host.json. The server must run our scheduler, as `llmserve real start` starts it.
"""

from __future__ import annotations

import argparse
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmserve_env.errors import ConfigError
from llmserve_env.json_files import read_json

BASE_PROFILE = "a100-40gb.llama-3-8b"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def add_parser(subparsers: Any) -> None:
    """Add `calibrate` to the main command."""
    parser = subparsers.add_parser("calibrate", help="fit a latency profile to a live server", description=__doc__)
    parser.add_argument("--provider", choices=("vllm",), default="vllm", help="only vLLM records its iterations")
    parser.add_argument("--base-url", metavar="URL", help="default: LLMSERVE_REAL_BASE_URL")
    parser.add_argument("--model", metavar="NAME", help="default: LLMSERVE_REAL_MODEL")
    parser.add_argument("--control-dir", type=Path, metavar="DIR", help="default: LLMSERVE_REAL_CONTROL_DIR")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="config.json of the model served")
    parser.add_argument(
        "--dtype", choices=tuple(BYTES), default="float32", help="data type of weights and KV cache (default: float32)"
    )
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="rounds of the probing load (default: 2)")
    parser.add_argument("--memory-gb", type=float, default=8.0, metavar="GB", help="memory of the machine (default: 8)")
    parser.add_argument("--price", type=float, default=0.05, metavar="USD", help="price per hour (default: 0.05)")
    parser.add_argument("--gpu", metavar="NAME", help="a card listed in profiles/gpus.py (default: one CPU core)")
    parser.add_argument(
        "--base", default=BASE_PROFILE, metavar="NAME", help="profile that supplies what is not measured"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.json")
    parser.set_defaults(run=run_calibrate)


def settings_from(args: argparse.Namespace) -> Any:
    """Settings of real mode from the environment and the command line."""
    from llmserve_env.backends.real.settings import RealSettings

    # One line per request would bury the figures.
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    given = {"base_url": args.base_url, "model": args.model, "control_dir": args.control_dir, "provider": "vllm"}
    # A comparison sends what the task says; only the engine is its limit.
    limits = {"max_requests_per_step": 100_000, "max_prompt_tokens": 1_000_000, "max_completion_tokens": 1_000_000}
    totals = {"max_requests": 1_000_000, "max_tokens": 10**9}
    return RealSettings(**{**limits, **totals, **{name: value for name, value in given.items() if value is not None}})


def run_calibrate(args: argparse.Namespace) -> int:
    """Probe, fit and write."""
    from llmserve_env.backends.real.calibration import cpu_core, host_of, probe, profile_of
    from llmserve_env.profiles import load_profile
    from llmserve_env.profiles.architectures import architecture_from_config
    from llmserve_env.profiles.gpus import GPUS
    from llmserve_env.profiles.host import beside, save_host
    from llmserve_env.profiles.store import save_profile
    from llmserve_env.units import gb_to_bytes

    if args.output.suffix != ".json":
        raise ConfigError(f"a profile is a .json file; got {args.output.name!r}")
    if args.gpu is not None and args.gpu not in GPUS:
        raise ConfigError(f"--gpu {args.gpu}: unknown; choose one of {', '.join(GPUS)}")
    settings = settings_from(args)
    config = read_json(args.config, "the config.json of a model", ConfigError)
    architecture = architecture_from_config(settings.model, config)
    found = probe(settings, rounds=args.rounds)
    today = datetime.now(UTC).date().isoformat()
    device = GPUS[args.gpu] if args.gpu else cpu_core(gb_to_bytes(args.memory_gb), args.price)
    name, base = args.output.stem, load_profile(args.base)
    profile = profile_of(found, base, device, architecture, name, today, BYTES[args.dtype])
    args.output.parent.mkdir(parents=True, exist_ok=True)
    path = save_profile(profile, args.output.parent)
    parts = f"{path}, host and device together, for the engine did not tell them apart"
    if found.recording.launches:
        source = f"llmserve calibrate, {today}, {len(found.recording.launches)} launches of {settings.model}"
        graphs = found.status.graph_max_tokens
        host = host_of(found.recording, found.front_end, graphs, beside(path).stem, source)
        parts = f"{path} and {save_host(host, args.output.parent).name}, {found.recording.host_ms / 1e3:.1f} s"
    error = profile.tiers["FP16"].held_out
    assert error is not None
    print(
        f"{parts}: {len(found.recording.iterations)} iterations, {found.recording.busy_ms / 1e3:.1f} s; "
        f"held-out error median {error.median_pct} %, p95 {error.p95_pct} %; "
        f"front end {found.front_end.request_ms} ms to the scheduler, {found.front_end.token_ms} ms back; "
        f"load average {found.load_average:.1f}",
        file=sys.stderr,
    )
    return 0
