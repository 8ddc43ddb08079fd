"""Simulate, train, evaluate and plan LLM inference serving."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from llmserve_env.cli.running import run
from llmserve_env.version import PACKAGE_VERSION

COMMANDS = (
    "train",
    "evaluate",
    "benchmark",
    "submit",
    "verify",
    "leaderboard",
    "tune",
    "baseline",
    "inference",
    "serve",
    "profile",
    "trace",
    "table",
    "task",
    "capacity",
    "report",
    "real",
    "pilot",
    "calibrate",
    "compare",
    "fleet",
)
"""Modules of this folder, each of which adds one subcommand."""


def parser() -> argparse.ArgumentParser:
    """The parser with every command."""
    top = argparse.ArgumentParser("llmserve", description=__doc__)
    top.add_argument("--version", action="version", version=f"llmserve {PACKAGE_VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"llmserve_env.cli.{name}").add_parser(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command."""
    return run(parser().parse_args(argv))


if __name__ == "__main__":
    raise SystemExit(main())
