"""Run a policy beside a live vLLM, or ask what it would have done with recorded windows (`pilot replay`)."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.errors import ConfigError

if TYPE_CHECKING:
    from llmserve_env.pilot.decision import Decision
    from llmserve_env.pilot.shadow import Shadow

LISTEN = "127.0.0.1:9109"
SAVINGS = ("cost_usd", "busy_gpu_s", "ttft_mean_ms", "ttft_p99_ms")


def add_parser(subparsers: Any) -> None:
    """Add `pilot` to the main command."""
    parser = subparsers.add_parser("pilot", help="run a policy beside a live engine", description=__doc__)
    parser.add_argument("--engine", metavar="URL", help="root of a vLLM server, as in http://127.0.0.1:8100")
    parser.add_argument("--control-dir", type=Path, metavar="DIR", help="folder shared with its scheduler")
    add_policy_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="recommend only; change nothing")
    parser.add_argument("--replicas", type=int, default=1, metavar="N", help="replicas that serve now (default: 1)")
    parser.add_argument(
        "--listen", default=LISTEN, metavar="HOST:PORT", help=f"metrics and decisions (default: {LISTEN})"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help="add every decision to this file, as JSON lines")
    parser.add_argument("--windows", type=int, metavar="N", help="stop after so many windows (default: never)")
    parser.set_defaults(run=run_pilot)
    commands = parser.add_subparsers(dest="pilot_command", metavar="COMMAND")
    shadow = commands.add_parser("replay", help="show what a pilot would have done with a recorded log, and saved")
    shadow.add_argument("log", type=Path, metavar="LOG", help="file that `llmserve pilot --log` wrote")
    add_policy_arguments(shadow)
    shadow.add_argument("--seed", type=int, default=0, help="seed of the requests drawn from the log (default: 0)")
    shadow.add_argument("--json", action="store_true")
    shadow.set_defaults(run=run_replay)


def add_policy_arguments(parser: Any) -> None:
    """The policy, the task it was made for, and what it may do."""
    parser.add_argument("--policy", default="heuristic", help="an agent by name, or your own (default: heuristic)")
    parser.add_argument("--task", default="tiny_server", help="task the policy was made for (default: tiny_server)")
    parser.add_argument("--bounds", type=Path, metavar="FILE", help="YAML file of bounds (default: nothing may change)")


def _parts(args: argparse.Namespace) -> tuple[Any, Any, Any]:
    from llmserve_env.agents.own.loading import load_agent
    from llmserve_env.backends.real.tasks import real_task
    from llmserve_env.pilot.bounds import Bounds, read_bounds

    return real_task(args.task), load_agent(args.policy), read_bounds(args.bounds) if args.bounds else Bounds()


def run_pilot(args: argparse.Namespace) -> int:
    """`llmserve pilot`."""
    from llmserve_env.pilot.engine_link import VllmLink
    from llmserve_env.pilot.exporter import DecisionLog, Exporter, PilotMetrics
    from llmserve_env.pilot.pilot import Pilot

    if args.engine is None or args.control_dir is None:
        raise ConfigError("give --engine URL and --control-dir DIR, as `llmserve real start` prints them")
    if args.replicas < 1:
        raise ConfigError(f"--replicas must be at least 1; got {args.replicas}")
    host, port = _address(args.listen)
    task, policy, bounds = _parts(args)
    link = VllmLink(args.engine, args.control_dir)
    pilot = Pilot(task, policy, link, bounds, dry_run=args.dry_run, replicas=args.replicas)
    exporter = Exporter(PilotMetrics(pilot), host, port)
    log = DecisionLog(args.log) if args.log else None
    # A decision is written to the log before it is printed.
    pilot.listeners += ([log.record] if log else []) + [_say]
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: pilot.stop())
    print(f"metrics and decisions at http://{host}:{exporter.port}", file=sys.stderr, flush=True)
    try:
        pilot.run(args.windows)
    finally:
        exporter.close()
        link.close()
        if log:
            log.close()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ConfigError(f"--listen is HOST:PORT, as in {LISTEN}; got {text!r}")
    return host, int(port)


def _say(decision: Decision) -> None:
    shown = " ".join(f"{name}={value}" for name, value in decision.permitted.items())
    print(f"{decision.at} window {decision.window}: {decision.outcome}: {shown} ({decision.reason})", flush=True)


def run_replay(args: argparse.Namespace) -> int:
    """`llmserve pilot replay`."""
    from llmserve_env.pilot.shadow import read_log, replay

    task, policy, bounds = _parts(args)
    found = replay(task, policy, bounds, read_log(args.log), args.seed)
    print(_as_json(found) if args.json else shadow_text(found))
    return 0


def _as_json(found: Shadow) -> str:
    from dataclasses import asdict

    saved = {name: found.saved(name) for name in SAVINGS}
    return json.dumps({**asdict(found), "saved": saved}, indent=1)


def shadow_text(found: Shadow) -> str:
    """What the pilot would have done, and both simulations side by side."""
    wanted = ", ".join(f"{name} {value:g}" for name, value in found.mean_wanted.items())
    lines = [
        f"{found.windows} windows: the pilot would have changed something after {found.changes}, "
        f"its bounds would have held it back in {found.bounded}; on average it would have set {wanted}",
        "",
        f"{'simulated':16}{'as recorded':>14}{'with the pilot':>16}{'saved':>9}",
    ]
    for name, value in found.recorded.items():
        saved = (
            f"{found.saved(name):>8.1%}" if name in ("cost_usd", "busy_gpu_s", "ttft_mean_ms", "ttft_p99_ms") else ""
        )
        lines.append(f"{name:16}{value:>14.4g}{found.piloted[name]:>16.4g}{saved:>9}")
    return "\n".join(lines)
