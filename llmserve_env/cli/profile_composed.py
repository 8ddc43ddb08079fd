"""`llmserve profile compose` and `list`: what can be served where, from published kernel timings."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llmserve_env.engine.tiers import TIER_NAMES
from llmserve_env.errors import ProfileError


def add_compose(commands: Any) -> None:
    """Add `compose`."""
    parser = commands.add_parser("compose", help="make the profile of any model on any card with published timings")
    parser.add_argument("--gpu", required=True, help="a card such as h100-80gb; `llmserve profile list` names them")
    parser.add_argument("--model", required=True, help="a known name, a config.json, or the folder that holds one")
    parser.add_argument("--weights", nargs="+", default=["fp16"], metavar="TIER", help="fp16, fp8, int4, fp4")
    parser.add_argument("--kv-cache", default="fp16", metavar="PRECISION", help="fp16 or fp8")
    for name in ("tensor", "pipeline", "expert"):
        parser.add_argument(f"--{name}-parallel", type=int, default=1, metavar="N")
    parser.add_argument("--data-parallel-attention", type=int, default=1, metavar="N")
    parser.add_argument(
        "--token-budget", type=int, default=8192, help="token budget for the memory account (default: 8192)"
    )
    parser.add_argument(
        "--max-running", type=int, default=256, help="largest batch for the memory account (default: 256)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write it to (default: only show it)")
    parser.set_defaults(run=run_compose)


def run_compose(args: argparse.Namespace) -> int:
    """`llmserve profile compose`."""
    from llmserve_env.profiles.composing.compose import compose_profile
    from llmserve_env.profiles.memory import check_card, memory_text
    from llmserve_env.profiles.serving import read_words
    from llmserve_env.profiles.showing import describe
    from llmserve_env.profiles.store import save_profile

    words = {name: value for name, value in vars(args).items() if name not in ("run", "out")}
    gpu_name, served, tiers = read_words(words)
    if args.out is not None and not args.out.is_dir():
        raise ProfileError(f"--out {args.out} is not a folder; create it first")
    check_card(gpu_name, served)
    profile = compose_profile(gpu_name, served, datetime.now(UTC).date().isoformat(), tiers)
    print(describe(profile))
    for tier in profile.tiers:
        print(f"\n{memory_text(profile, tier, args.token_budget, args.max_running)}")
    if args.out is not None:
        print(f"\nwritten to {save_profile(profile, args.out)}")
    return 0


def add_list(commands: Any) -> None:
    """Add `list`."""
    parser = commands.add_parser("list", help="list the profiles, and what can be served where")
    parser.add_argument("--composed", action="store_true", help="every composed profile by name")
    parser.set_defaults(run=run_list)


def run_list(args: argparse.Namespace) -> int:
    """`llmserve profile list`."""
    from llmserve_env.profiles import list_profiles, load_profile
    from llmserve_env.profiles.host import list_hosts, load_host
    from llmserve_env.profiles.showing import aligned
    from llmserve_env.profiles.store import list_composed

    if args.composed:
        print("\n".join(list_composed()))
        return 0
    rows = []
    for name in list_profiles():
        profile = load_profile(name)
        told = [f"{tier} {profile.tiers[tier].origin}{_error(profile.tiers[tier])}" for tier in profile.tiers]
        rows.append([name, profile.gpu.name, f"{profile.gpu.price_usd_per_hour:.2f}", ", ".join(told)])
    print("\n".join(aligned(["profile", "GPU", "USD/h", "tiers (median error on points left out)"], rows)))
    hosts = [[host.name, host.machine, host.engine] for host in map(load_host, list_hosts())]
    print("\n" + "\n".join(aligned(["host", "machine", "engine"], hosts)))
    print("\ncomposed, with the tensor parallelism that fits and its tiers; errors in docs/profiles.md:")
    print("\n".join(aligned(["model", "GPU", "tiers by tensor_parallel"], _served_where())))
    return 0


def _error(tier: Any) -> str:
    return f" ({tier.held_out.median_pct:.1f} %)" if tier.held_out is not None else ""


def _served_where() -> list[list[str]]:
    """A row per model and card, from the shipped composed profiles."""
    from llmserve_env.profiles.naming import parse_name
    from llmserve_env.profiles.store import list_composed, shipped_tiers

    found: dict[tuple[str, str], dict[int, list[str]]] = {}
    for name in list_composed():
        parsed = parse_name(name)
        if parsed is None or parsed[1].kv_cache != "fp16" or parsed[1].expert_parallel > 1:
            continue
        gpu_name, served = parsed
        ways = found.setdefault((served.model.name, gpu_name), {})
        ways[served.tensor_parallel] = sorted(shipped_tiers(name), key=TIER_NAMES.index)
    return [
        [model, gpu_name, "; ".join(f"{n}: {', '.join(tiers).lower()}" for n, tiers in sorted(ways.items()))]
        for (model, gpu_name), ways in sorted(found.items())
    ]
