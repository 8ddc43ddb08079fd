"""Shared start and end of every command: argument parsing, errors on stderr, exit status."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmserve_env.errors import ConfigError, LLMServeError

if TYPE_CHECKING:
    from llmserve_env.evaluation.parallel import Runner

USER_ERROR, INTERRUPTED = 2, 130
ALL_TASKS = "all"


def run(args: argparse.Namespace) -> int:
    """Run a parsed command; an error that the user can fix becomes a message and exit status 2."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        return int(args.run(args))
    except LLMServeError as error:
        print(f"error: {error}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def script(
    add_arguments: Callable[[Any], None], program: str, description: str | None, argv: Sequence[str] | None
) -> int:
    """Run a root script that is a single command."""
    parser = argparse.ArgumentParser(program, description=description)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def task_names(given: str) -> tuple[str, ...]:
    """Tasks named by `all` (the core suite) or by ids, numbers or files separated by commas."""
    from llmserve_env.tasks.catalog import BENCHMARK, load_task

    return BENCHMARK if given == ALL_TASKS else tuple(load_task(name.strip()).id for name in given.split(","))


def named_tasks(file: str | None, given: str | None) -> tuple[str, ...]:
    """Tasks of a command that accepts a task file as well as `--task`."""
    if file is not None and given is not None:
        raise ConfigError(f"give {file} or --task {given}, not both")
    return task_names(file or given or ALL_TASKS)


@contextmanager
def runner_of(jobs: int, ray_address: str | None) -> Iterator[Runner]:
    """A runner on this machine's threads, or on a Ray cluster; `local` starts one for the duration of the command."""
    if ray_address is None:
        from llmserve_env.evaluation.parallel import Threads

        yield Threads(jobs)
        return
    try:
        from llmserve_env.evaluation.ray_runner import ray_runner
    except ModuleNotFoundError as error:
        raise ConfigError(f"--ray-address needs {error.name}: pip install '.[ray]'") from error
    with ray_runner(None if ray_address == "local" else ray_address, jobs) as runner:
        yield runner


def write_text(where: str, text: str) -> None:
    """Write text to a file, or to stdout for `-`."""
    if where == "-":
        print(text)
        return
    path = Path(where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.endswith("\n") else f"{text}\n", encoding="utf-8")
    print(f"written to {path}", file=sys.stderr)
