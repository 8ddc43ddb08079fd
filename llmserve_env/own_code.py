"""Calls code that is not ours: what it raises becomes an error of the agent, with the line of its author's file."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmserve_env.errors import AgentError, LLMServeError

MAX_FRAMES = 5
_OURS = (str(Path(__file__).resolve().parent), "<frozen importlib")


@contextmanager
def own_code(where: str) -> Iterator[None]:
    """Turn whatever is raised inside into an AgentError that names `where`; our own errors stay as they are."""
    try:
        yield
    except LLMServeError:
        raise
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise AgentError("\n".join([f"{where} raised {said}", *_lines(error)])) from error


def _lines(error: BaseException) -> list[str]:
    """Where in its author's code an error was raised: the calls from there on, without those that lead to it."""
    frames = traceback.extract_tb(error.__traceback__)
    while frames and frames[0].filename.startswith(_OURS):
        frames.pop(0)
    return [f"  {one.filename}, line {one.lineno}, in {one.name}: {one.line}" for one in frames[-MAX_FRAMES:]]
