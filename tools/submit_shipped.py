"""Submit the shipped agents to the leaderboard, by the same command as everybody else.

python -m tools.submit_shipped [--suite core] [--folder leaderboard] [AGENT ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from llmserve_env.agents.registry import BENCHMARKED
from llmserve_env.cli.main import main as llmserve

AUTHOR = "shipped with the package"


def main(argv: Sequence[str] | None = None) -> int:
    """Write a submission per agent; the first that fails ends the run."""
    parser = argparse.ArgumentParser("python -m tools.submit_shipped", description=__doc__)
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="default: those of the suite's published table")
    parser.add_argument("--suite", default="core")
    parser.add_argument("--folder", type=Path, default=Path("leaderboard"))
    args = parser.parse_args(argv)
    for agent in args.agents or BENCHMARKED[args.suite]:
        path = args.folder / f"{args.suite}-{agent}.json"
        status = llmserve(
            ["submit", "--agent", agent, "--suite", args.suite, "--author", AUTHOR, "--output", str(path)]
        )
        if status:
            return status
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
