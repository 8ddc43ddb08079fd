"""Verify every submission in a folder and write the leaderboard as Markdown and as a page."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from llmserve_env.cli.running import USER_ERROR, add_runner_arguments, runner_of
from llmserve_env.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add `leaderboard` to the main command."""
    parser = subparsers.add_parser("leaderboard", help="verify and render submissions", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("leaderboard"), metavar="FOLDER")
    parser.add_argument("--document", type=Path, default=Path("docs/leaderboard.md"), metavar="FILE")
    parser.add_argument("--page", type=Path, default=Path("docs/leaderboard.html"), metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; status 2 if a file is not up to date")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_leaderboard)


def run_leaderboard(args: argparse.Namespace) -> int:
    """Verify, then write or compare."""
    from llmserve_env.leaderboard.document import leaderboard_document
    from llmserve_env.leaderboard.page import leaderboard_page
    from llmserve_env.leaderboard.standings import standings, verified_files

    with runner_of(args) as runner:
        found = verified_files(args.folder, runner)
    if not found:
        raise ConfigError(f"{args.folder} holds no submissions; write one with: llmserve submit -o {args.folder}/FILE")
    suites = standings(found)
    stale = False
    for path, render in ((args.document, leaderboard_document), (args.page, leaderboard_page)):
        text = render(suites, Path(os.path.relpath(args.folder, path.parent)).as_posix())
        is_current = path.is_file() and path.read_text(encoding="utf-8") == text
        stale |= not is_current
        if not args.check and not is_current:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        print(f"{path}: {'up to date' if is_current else 'not up to date' if args.check else 'written'}")
    print(f"{len(found)} submissions verified")
    return USER_ERROR if args.check and stale else 0
