"""The live vLLM that `make real-test` starts, as the tests find it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmserve_env.backends.real.launcher import LaunchOptions, VllmServer

PYTHON_VARIABLE, MODEL_VARIABLE, ARTIFACTS_VARIABLE = (
    "LLMSERVE_REAL_PYTHON",
    "LLMSERVE_REAL_MODEL_DIR",
    "LLMSERVE_REAL_ARTIFACTS",
)
START_TIMEOUT_S = 1_200.0
"""Loading vLLM takes half a minute, and many times that beside other work."""


def options(folder: Path, **overrides: Any) -> LaunchOptions:
    """Launch options of the installed engine; `make real-test` names it in the environment."""
    missing = [name for name in (PYTHON_VARIABLE, MODEL_VARIABLE) if name not in os.environ]
    if missing:
        pytest.fail(f"{' and '.join(missing)} must name the engine: run `make real-test`")
    python, model = (Path(os.environ[name]) for name in (PYTHON_VARIABLE, MODEL_VARIABLE))
    return LaunchOptions(python=python, model=model, folder=folder, start_timeout_s=START_TIMEOUT_S, **overrides)


def artifacts() -> Path:
    """Where transcripts are kept."""
    folder = Path(os.environ.get(ARTIFACTS_VARIABLE, "artifacts/real"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """A server with n-gram speculation, for the whole run."""
    with VllmServer(options(tmp_path_factory.mktemp("vllm"), speculation_depth=4)) as server:
        yield server


def until(step: Callable[[], dict[str, Any]], happened: Callable[[dict[str, Any]], bool], limit: int = 600) -> Any:
    """Step until something is seen; fail if it never is."""
    for _ in range(limit):
        seen = step()
        if happened(seen):
            return seen
    pytest.fail(f"not seen in {limit} windows; the last was {seen}")
