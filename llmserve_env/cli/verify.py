"""Replay a submission and print its score, or what does not fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.cli.evaluate import agent_options
from llmserve_env.cli.language_model import add_llm_arguments
from llmserve_env.cli.running import USER_ERROR, add_runner_arguments, runner_of

if TYPE_CHECKING:
    from llmserve_env.evaluation.runner import Runner
    from llmserve_env.leaderboard.verifying import Verified


def add_parser(subparsers: Any) -> None:
    """Add `verify` to the main command."""
    parser = subparsers.add_parser("verify", help="replay a submission", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="submissions")
    parser.add_argument("--agent", metavar="AGENT", help="also play this agent again, on the same seeds and fresh ones")
    parser.add_argument("--weights", type=Path, metavar="PATH", help="passed to an agent that takes weights")
    add_llm_arguments(parser)
    parser.add_argument(
        "--fresh-seed-start", type=int, default=305_000, metavar="N", help="first fresh seed (default: 305000)"
    )
    add_runner_arguments(parser)
    parser.set_defaults(run=run_verify)


def run_verify(args: argparse.Namespace) -> int:
    """Replay every file; status 2 if one does not fit."""
    from llmserve_env.errors import LLMServeError
    from llmserve_env.evaluation.report import mean_text
    from llmserve_env.evaluation.statistics import summarise
    from llmserve_env.leaderboard.submission import read_submission
    from llmserve_env.leaderboard.verifying import verify

    refused = 0
    with runner_of(args) as runner:
        for path in args.files:
            try:
                verified = verify(read_submission(path), runner)
            except LLMServeError as error:
                print(f"{path}: REFUSED: {error}")
                refused += 1
                continue
            agent = verified.submission.agent
            print(f"{path}: verified, {agent.name} on the {verified.submission.suite} suite")
            for task, scores in verified.scores.items():
                print(f"  {task:<26}{mean_text(summarise(scores))}  ({len(scores)} episodes)")
            if args.agent:
                refused += not _plays_the_same(args, verified, runner)
    return USER_ERROR if refused else 0


def _plays_the_same(args: argparse.Namespace, verified: Verified, runner: Runner) -> bool:
    from llmserve_env.evaluation.report import mean_text
    from llmserve_env.evaluation.statistics import summarise
    from llmserve_env.leaderboard.again import played_again

    options = agent_options(args, args.agent)
    again = played_again(verified.submission, args.agent, args.fresh_seed_start, runner, **options)
    print(f"  {args.agent} chose the same actions in {again.num_same} of {again.num_episodes} episodes")
    for task, scores in again.fresh_scores.items():
        print(f"  {task:<26}{mean_text(summarise(scores))}  on fresh seeds from {args.fresh_seed_start}")
    return again.num_same == again.num_episodes
