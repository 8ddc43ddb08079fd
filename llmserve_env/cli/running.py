"""What all commands share: parsing, errors and exit status, tasks by name, runners and output."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.errors import ConfigError, LLMServeError

if TYPE_CHECKING:
    from llmserve_env.evaluation.runner import Progress, Runner
    from llmserve_env.planning.answer.protocol import Protocol
    from llmserve_env.tasks.task import Task

FLEET_SUITE = "fleet"
USER_ERROR, INTERRUPTED = 2, 130
ALL_TASKS = "all"
FRESH_EPISODES = 16


def run(args: argparse.Namespace) -> int:
    """Run a parsed command; an error that the user can fix becomes a message and status 2."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_worth_a_line)
    try:
        return int(args.run(args))
    except LLMServeError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """False for what HTTP clients log about every request: thousands for a policy service or a language model."""
    return not record.getMessage().startswith("HTTP Request:")


def script(
    add_arguments: Callable[[Any], None], program: str, description: str | None, argv: Sequence[str] | None
) -> int:
    """Run a root script that is a single command."""
    parser = argparse.ArgumentParser(program, description=description)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def named_tasks(given: str | None, file: str | None = None, suite: str | None = None) -> tuple[Task, ...]:
    """The tasks that a command names: with `--task` or `--suite`, or by the file of a task of your own.

    `all`, or nothing, is the core suite; otherwise `--task` holds ids, numbers or files separated by commas.
    """
    from llmserve_env.tasks.catalog import BENCHMARK, SUITES, load_task

    if suite is not None:
        if given is not None or file is not None:
            raise ConfigError(f"give --suite {suite} or --task {given or file}, not both")
        if suite not in SUITES:
            raise ConfigError(f"there is no suite {suite!r}; known: {', '.join((*SUITES, FLEET_SUITE))}")
        return tuple(load_task(name) for name in SUITES[suite])
    if file is not None and given is not None:
        raise ConfigError(f"give {file} or --task {given}, not both")
    text = file or given or ALL_TASKS
    names = BENCHMARK if text == ALL_TASKS else tuple(name.strip() for name in text.split(","))
    return tuple(load_task(name) for name in names)


def add_answer_arguments(parser: Any) -> None:
    """Options for finding and verifying an answer about a fleet; `protocol_of` reads them for every command."""
    parser.add_argument(
        "--target",
        type=float,
        default=0.95,
        metavar="SHARE",
        help="share of requests that must be within a limit, for classes that name none (default: 0.95)",
    )
    parser.add_argument(
        "--confidence", type=float, default=0.95, metavar="SHARE", help="required to accept a fleet (default: 0.95)"
    )
    parser.add_argument("--max-replicas", type=int, default=64, metavar="N", help="largest fleet (default: 64)")
    parser.add_argument("--profile", nargs="+", metavar="NAME", help="GPUs to choose from (default: the task's)")
    parser.add_argument("--search-episodes", type=int, default=8, metavar="N", help="seeds of the search (default: 8)")
    parser.add_argument(
        "--episodes",
        type=int,
        default=FRESH_EPISODES,
        metavar="N",
        help=f"fresh seeds of the verification (default: {FRESH_EPISODES})",
    )


def protocol_of(args: argparse.Namespace) -> Protocol:
    """The protocol that a command asks for; a value out of range is an error."""
    from llmserve_env.planning.answer.protocol import Protocol
    from llmserve_env.profiles.store import load_profile

    for name in args.profile or ():
        load_profile(name)
    return Protocol(
        target=args.target,
        confidence=args.confidence,
        num_search_seeds=args.search_episodes,
        num_fresh_seeds=FRESH_EPISODES if args.episodes is None else args.episodes,
        max_replicas=args.max_replicas,
        profiles=tuple(args.profile or ()),
    )


def add_runner_arguments(parser: Any) -> None:
    """Options of commands that run pieces of work side by side; `runner_of` reads them."""
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="threads (default: all cores)"
    )
    parser.add_argument("--ray-address", metavar="ADDRESS", help="run on a Ray cluster (`local` starts one)")


@contextmanager
def runner_of(args: argparse.Namespace) -> Iterator[Runner]:
    """The runner of a command, with a progress bar: threads of this machine, or a Ray cluster by its address."""
    with progress_bar() as progress:
        if args.ray_address is None:
            from llmserve_env.evaluation.runner import Threads

            yield Threads(args.jobs, progress)
            return
        try:
            from llmserve_env.evaluation.ray_runner import ray_runner
        except ModuleNotFoundError as error:
            raise ConfigError(f"--ray-address needs {error.name}: pip install '.[ray]'") from error
        with ray_runner(None if args.ray_address == "local" else args.ray_address, args.jobs, progress) as runner:
            yield runner


class _Bar:
    """A progress bar of pieces of work."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def stage(self, name: str) -> None:
        """Name what is being worked on, in front of the bar."""
        self._bar.set_description(name)

    def expect(self, num_pieces: int) -> None:
        """Add to the total."""
        self._bar.total = (self._bar.total or 0) + num_pieces

    def finish(self) -> None:
        """Move on by one piece."""
        self._bar.update(1)


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """A bar on stderr; shown on terminals only, because a log file has no use for a moving bar."""
    from tqdm import tqdm

    with tqdm(unit="piece", file=sys.stderr, disable=None, leave=False) as bar:
        yield _Bar(bar)


def write_text(where: str, text: str) -> None:
    """Write text to a file, or to stdout for `-`."""
    if where == "-":
        print(text)
        return
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    print(f"written to {path}", file=sys.stderr)
