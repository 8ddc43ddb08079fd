"""Play an agent on the official seeds of a suite and write a submission for the leaderboard."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from llmserve_env.cli.evaluate import agent_options
from llmserve_env.cli.language_model import add_llm_arguments
from llmserve_env.cli.running import add_runner_arguments, named_tasks, runner_of
from llmserve_env.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add `submit` to the main command."""
    parser = subparsers.add_parser("submit", help="write a submission for the leaderboard", description=__doc__)
    parser.add_argument("--agent", required=True, metavar="AGENT", help="a name, or an agent of your own")
    parser.add_argument("--weights", type=Path, metavar="PATH", help="passed to an agent that takes weights")
    add_llm_arguments(parser)
    parser.add_argument("--suite", default="core", metavar="NAME", help="core or extended (default: core)")
    parser.add_argument("--episodes", type=int, default=20, metavar="N", help="official seeds (default: all 20)")
    parser.add_argument("--name", metavar="TEXT", help="name on the leaderboard (default: that of the agent)")
    parser.add_argument("--description", default="", metavar="TEXT", help="one sentence on how it decides")
    parser.add_argument("--author", default="", metavar="TEXT")
    parser.add_argument("--url", default="", metavar="URL", help="where the agent can be found")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="where to write it")
    add_runner_arguments(parser)
    parser.set_defaults(run=run_submit)


def run_submit(args: argparse.Namespace) -> int:
    """Play, write, and say what was scored."""
    from llmserve_env.agents.own.loading import load_agent
    from llmserve_env.agents.registry import CEILINGS, current_name
    from llmserve_env.leaderboard.submission import AgentCard, write_submission
    from llmserve_env.leaderboard.submitting import official_seeds, submit

    tasks, options = named_tasks(None, suite=args.suite), agent_options(args, args.agent)
    official_seeds(args.episodes)
    # What is wrong with the agent is reported before anything is played.
    agent = load_agent(args.agent, **options)
    own_words = _in_its_own_words(args.agent, agent)
    played_by = options["settings"].model if "settings" in options else args.agent.rpartition(":")[2]
    name = args.name or played_by.strip("/")
    try:
        card = AgentCard(
            name=name,
            description=args.description or own_words,
            author=args.author,
            url=args.url,
            played_as=args.agent,
            sees_the_future=current_name(args.agent) in CEILINGS,
        )
    except ValueError as error:
        raise ConfigError(f"the agent's card is not accepted: {error}; use --name, --url") from error
    with runner_of(args) as runner:
        submission = submit(card, args.suite, tasks, args.episodes, runner, **options)
    write_submission(submission, args.output)
    for task in submission.tasks:
        mean = sum(episode.score for episode in task.episodes) / len(task.episodes)
        print(f"{task.id:<26}{mean:.3f}  ({len(task.episodes)} episodes)")
    print(f"written to {args.output}; check it with: llmserve verify {args.output}")
    return 0


def _in_its_own_words(name: str, agent: object) -> str:
    """How the registry describes a shipped agent; for any other, the first line of its class's docstring."""
    from llmserve_env.agents.registry import AGENTS, current_name

    entry = AGENTS.get(current_name(name))
    if entry is not None:
        words = entry.does.replace("`", "")
        return f"{words[0].upper()}{words[1:]}."
    return "" if ":" in name else (type(agent).__doc__ or "").splitlines()[0]
